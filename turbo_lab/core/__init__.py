"""Errors, units, facts about the host, and the two dials. Imports nothing of the project above."""
