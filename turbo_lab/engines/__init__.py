"""Inference servers as real processes: start, readiness, effective configuration, metrics, stop."""
