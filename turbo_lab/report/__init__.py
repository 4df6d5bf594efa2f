"""Showing results: plots and self-contained HTML pages."""
