"""When spreading one context over hosts pays: attention saved against the merge's time.

    attention(S) = S * kv_bytes_per_token / bandwidth
    merge(n) = layers * (load * vectors * frame / rate + hops * (delay + frame / rate))
    spread(S, n) = attention(S / n) + merge(n)

``load`` and ``hops`` are those of the strategy. A packet is passed on as soon as it is whole, so a
layer costs what its busiest link carries, and the way of one packet. Weights and everything else of
a step are the same on both sides and left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.packet import frame_bytes
from turbo_lab.turbo.strategies import busiest_load, longest_way


@dataclass(frozen=True, kw_only=True)
class MergeWork:
    """What a decode step has to merge. ``vectors``: query heads times sequences of a layer."""

    layers: int
    vectors: int
    dim: int

    def __post_init__(self) -> None:
        """Refuse an empty step."""
        if min(self.layers, self.vectors, self.dim) < 1:
            raise UsageError(f"{self}: layers, vectors and dim must be at least 1")


def merge_s(
    work: MergeWork, *, strategy: str, hosts: int, rate_bytes_s: float, delay_s: float
) -> float:
    """Seconds of a step's merges; ``delay_s`` is what one hop adds beside sending the frame.

    A hop between hosts passes the switch too: its delay is that of two links
    (``strategies.links_per_hop``), where a switch that merges is one link away.
    """
    frame_s = frame_bytes(work.dim) / rate_bytes_s
    load = busiest_load(strategy, hosts=hosts)
    hops = longest_way(strategy, hosts=hosts)
    return work.layers * (load * work.vectors * frame_s + hops * (delay_s + frame_s))


def spread_s(
    context_tokens: float,
    *,
    work: MergeWork,
    strategy: str,
    hosts: int,
    kv_bytes_per_token: float,
    bandwidth_bytes_s: float,
    rate_bytes_s: float,
    delay_s: float,
) -> float:
    """Attention over a share of the context plus the merges, in seconds."""
    share_s = attention_s(context_tokens / hosts, kv_bytes_per_token=kv_bytes_per_token,
                          bandwidth_bytes_s=bandwidth_bytes_s)  # fmt: skip
    return share_s + merge_s(
        work, strategy=strategy, hosts=hosts, rate_bytes_s=rate_bytes_s, delay_s=delay_s
    )


def attention_s(
    context_tokens: float, *, kv_bytes_per_token: float, bandwidth_bytes_s: float
) -> float:
    """Seconds to read the cache of a context once: what decode attention is bound by."""
    return context_tokens * kv_bytes_per_token / bandwidth_bytes_s


def break_even_tokens(
    *,
    work: MergeWork,
    strategy: str,
    hosts: int,
    kv_bytes_per_token: float,
    bandwidth_bytes_s: float,
    rate_bytes_s: float,
    delay_s: float,
) -> float:
    """Context from which spreading over hosts is faster than one host:
    ``merge(n) * bandwidth / (kv_bytes_per_token * (1 - 1/n))``.
    """
    merging_s = merge_s(
        work, strategy=strategy, hosts=hosts, rate_bytes_s=rate_bytes_s, delay_s=delay_s
    )
    saved_s = attention_s(1 - 1 / hosts, kv_bytes_per_token=kv_bytes_per_token,
                          bandwidth_bytes_s=bandwidth_bytes_s)  # fmt: skip
    return merging_s / saved_s
