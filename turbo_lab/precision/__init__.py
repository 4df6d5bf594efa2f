"""Fewer bits for weights and for the KV cache, with the quality they cost."""
