"""Faults put into real servers on purpose, and taken out again."""
