"""Model specifications read from config.json, and the memory and work that follow from them."""
