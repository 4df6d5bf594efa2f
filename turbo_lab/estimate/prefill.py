"""How long a prompt takes when its beginning is cached: calibrated on prompts that are not.

``t = request_s + F_linear * linear_s_flop + F_attn * attention_s_flop``, the prefill part of
``estimate.fit`` without a roof: operations are counted, the three coefficients are fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.work import step_work
from turbo_lab.models.spec import ModelSpec

LEAST_LENGTHS = 3


@dataclass(frozen=True)
class PrefillLaw:
    """Seconds from sending to the first token of a request that runs alone."""

    spec: ModelSpec
    request_s: float
    linear_s_flop: float
    attention_s_flop: float

    def seconds(self, *, tokens: int, past: int = 0) -> float:
        """For ``tokens`` that are computed behind ``past`` cached ones."""
        _, linear, attention = _columns(self.spec, tokens, past)
        return self.request_s + linear * self.linear_s_flop + attention * self.attention_s_flop

    def tokens_per_s(self, *, tokens: int) -> float:
        """Rate at which a prompt of this length is computed, without the fixed part."""
        return tokens / (self.seconds(tokens=tokens) - self.request_s)


def fit_prefill(spec: ModelSpec, samples_s: Mapping[int, Sequence[float]]) -> PrefillLaw:
    """Fit on prompts without a cached beginning: tokens to seconds, at least three lengths.

    The median of each length counts; least squares on relative errors, no coefficient below 0.
    Raises UsageError for too few lengths or times that are not positive.
    """
    from scipy.optimize import nnls

    known = {n: float(np.median(values)) for n, values in samples_s.items() if len(values)}
    if len(known) < LEAST_LENGTHS or min(known.values()) <= 0:
        raise UsageError(
            f"{len(known)} prompt lengths with times {sorted(known.values())}; wanted are "
            f"{LEAST_LENGTHS} lengths or more, with times above 0."
        )
    rows = np.array([_columns(spec, n, 0) for n in known]) / np.array([*known.values()])[:, None]
    scale = rows.max(axis=0)
    found = nnls(rows / scale, np.ones(len(rows)))[0] / scale
    return PrefillLaw(spec, *map(float, found))


def _columns(spec: ModelSpec, tokens: int, past: int) -> tuple[float, float, float]:
    work = step_work(spec, [(tokens, past)], weight_bytes=2)
    attention = float(work.part("attention").flops)
    return 1.0, float(work.flops) - attention, attention
