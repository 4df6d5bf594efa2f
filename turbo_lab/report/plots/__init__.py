"""Figures. Each function takes data first and an optional ``ax``, and returns the Axes."""
