"""Guessing several tokens and checking them in one step: drafts, acceptance, live studies."""
