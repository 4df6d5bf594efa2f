"""Closed forms: what fits, how long a step takes, what speculation and pipelines gain."""
