"""Turbo Lab: predict, measure and compare LLM-inference optimisations on your own machine."""

__version__ = "0.1.0"
