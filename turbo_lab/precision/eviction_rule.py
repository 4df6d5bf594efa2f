"""Which tokens stay, and how many bytes they take. Computes only; no torch.

Two rules: the first tokens and a window of the newest (StreamingLLM, arXiv 2309.17453), and heavy
hitters, the tokens that gathered most attention so far, beside a window (H2O, arXiv 2306.14048).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turbo_lab.core.errors import UsageError

SCORE_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Eviction:
    """What is kept: ``sink_tokens`` first, ``heavy_tokens`` by attention, ``window_tokens`` newest.

    Without heavy tokens this is sink plus window. All are counted per KV head, and each head picks
    its own heavy hitters.
    """

    window_tokens: int
    sink_tokens: int = 0
    heavy_tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse a cache that keeps nothing new."""
        if self.window_tokens < 1:
            raise UsageError(f"window_tokens is {self.window_tokens}; it must be at least 1")
        for name in ("sink_tokens", "heavy_tokens"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}; it must not be negative")

    @property
    def budget_tokens(self) -> int:
        """Tokens that stay after a pass, at most."""
        return self.window_tokens + self.sink_tokens + self.heavy_tokens

    @property
    def rule(self) -> Literal["sink and window", "heavy hitters"]:
        """The name of the rule."""
        return "heavy hitters" if self.heavy_tokens else "sink and window"


def evicted_layer_bytes(
    eviction: Eviction,
    *,
    tokens: int,
    kv_heads: int,
    head_dim: int,
    batch: int = 1,
    element_bytes: int = 4,
) -> int:
    """Bytes one layer keeps after ``tokens`` tokens: ``min(S, budget) * B * H * (2 D * element)``.

    Heavy hitters add one fp32 score per kept token and head.
    """
    kept = min(tokens, eviction.budget_tokens)
    scores = SCORE_BYTES if eviction.heavy_tokens else 0
    return kept * batch * kv_heads * (2 * head_dim * element_bytes + scores)
