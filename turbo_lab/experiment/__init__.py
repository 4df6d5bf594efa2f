"""Experiments: one run with its validity gates, comparisons, sweeps, studies, verification."""
