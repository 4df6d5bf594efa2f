"""What a server's ``/metrics`` page says in all, whatever its labels."""

from __future__ import annotations

from collections.abc import Mapping


def sum_over_labels(samples: Mapping[str, float]) -> dict[str, float]:
    """Metric name to the sum over its label sets; keys are ``name`` or ``name{labels}``."""
    sums: dict[str, float] = {}
    for key, value in samples.items():
        name = key.split("{")[0]
        sums[name] = sums.get(name, 0.0) + value
    return sums
