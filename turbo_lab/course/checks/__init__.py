"""Exercises, one file per notebook: cases, properties and known wrong answers."""
