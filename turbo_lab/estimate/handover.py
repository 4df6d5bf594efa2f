"""Moving a prompt's KV cache against computing it again: bytes, seconds, break-even bandwidth.

A consumer that fetches still computes what follows the last whole block, so both ways share that
part. Times come from a :class:`~turbo_lab.estimate.prefill.PrefillLaw` calibrated on the consumer.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.estimate.prefill import PrefillLaw
from turbo_lab.estimate.prefix import hit_tokens


@dataclass(frozen=True)
class HandoverCost:
    """What a prompt costs either way.

    ``bytes_per_token``: on the link (the model's KV bytes, or fewer). ``block_tokens``: only whole
    blocks travel. ``fixed_s``: a transfer's time beside its bytes (asking, waiting for the engine's
    next step). ``host_s_per_byte``: what both engines need per byte; hidden behind a slower link.
    """

    law: PrefillLaw
    bytes_per_token: float
    block_tokens: int
    fixed_s: float = 0.0
    host_s_per_byte: float = 0.0

    def moved_tokens(self, prompt_tokens: int) -> int:
        """Tokens that travel: whole blocks, with at least one token left to compute."""
        return hit_tokens(shared_tokens=prompt_tokens, prompt_tokens=prompt_tokens,
                          block_tokens=self.block_tokens)  # fmt: skip

    def moved_bytes(self, prompt_tokens: int) -> float:
        """``bytes_per_token * moved_tokens``."""
        return self.bytes_per_token * self.moved_tokens(prompt_tokens)

    def rest_s(self, prompt_tokens: int) -> float:
        """Seconds to compute what follows the moved tokens, and to answer."""
        moved = self.moved_tokens(prompt_tokens)
        return self.law.seconds(tokens=prompt_tokens - moved, past=moved)

    def recompute_s(self, prompt_tokens: int) -> float:
        """TTFT without a transfer."""
        return self.law.seconds(tokens=prompt_tokens)

    def transfer_s(self, prompt_tokens: int, *, bandwidth_bytes_s: float) -> float:
        """TTFT with a transfer: ``fixed + bytes * max(1/bandwidth, host) + rest``."""
        if not bandwidth_bytes_s > 0:
            raise UsageError(f"bandwidth is {bandwidth_bytes_s} bytes/s; it must be above 0")
        per_byte_s = max(1 / bandwidth_bytes_s, self.host_s_per_byte)
        return (
            self.fixed_s + self.moved_bytes(prompt_tokens) * per_byte_s + self.rest_s(prompt_tokens)
        )

    def break_even_bytes_s(self, prompt_tokens: int) -> float:
        """Bandwidth at which both ways take the same time: ``bytes / (recompute - rest - fixed)``.

        Raises UnmeasuredError where no bandwidth is enough: nothing to move, or the fixed time or
        the engines' own work per byte is longer than computing again.
        """
        size = self.moved_bytes(prompt_tokens)
        left_s = self.recompute_s(prompt_tokens) - self.rest_s(prompt_tokens) - self.fixed_s
        if size <= 0 or left_s <= 0 or left_s < size * self.host_s_per_byte:
            raise UnmeasuredError(
                f"no bandwidth makes moving {self.moved_tokens(prompt_tokens)} tokens pay: "
                f"computing them takes {left_s + self.fixed_s:.3g} s, and a transfer "
                f"{self.fixed_s + size * self.host_s_per_byte:.3g} s on a link without limit"
            )
        return size / left_s


def crossing_bytes_s(
    transfer_s: Mapping[float, Sequence[float]], *, recompute_s: Sequence[float]
) -> float:
    """Measured break-even: where TTFT against 1/bandwidth crosses the TTFT of recomputation.

    ``transfer_s``: samples by bandwidth (bytes/s). Medians count; between the two bandwidths on
    either side of the crossing the time is linear in ``1/bandwidth``, because bytes are fixed.

    Raises UnmeasuredError when no pair of neighbours lies on both sides: then only a bound is
    known, and the message says which.
    """
    if len(transfer_s) < 2 or not recompute_s:
        raise UnmeasuredError("two bandwidths and one time of recomputation are wanted at least")
    goal = _median(recompute_s)
    points = sorted((1 / rate, _median(samples)) for rate, samples in transfer_s.items())
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if y0 <= goal <= y1:
            share = (goal - y0) / (y1 - y0) if y1 > y0 else 0.0
            return 1 / (x0 + share * (x1 - x0))
    fastest, slowest = 1 / points[0][0], 1 / points[-1][0]
    if points[-1][1] < goal:
        raise UnmeasuredError(f"moving won at every bandwidth down to {slowest:.3g} bytes/s")
    raise UnmeasuredError(f"computing again won at every bandwidth up to {fastest:.3g} bytes/s")


def _median(samples: Sequence[float]) -> float:
    if not samples:
        raise UnmeasuredError("a bandwidth has no sample")
    return float(median(samples))
