"""Weights in fewer bits: rounding, GPTQ, AWQ, pruning, sensitivity, and export to the engine."""
