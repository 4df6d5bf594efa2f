"""When does splitting a layer pay? Time of a split step, and the link at which it breaks even.

    gain = t_1 / (t_repeated + (t_1 - t_repeated) / n + t_exchange)

On a ring of n ranks S bytes take ``2(n-1)`` rounds of ``S/n`` for an all-reduce and ``n-1`` for
a gather. Few bytes (decode) cost rounds times latency, many (prefill) cost bytes over bandwidth.
Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005; Shoeybi et al., arXiv 1909.08053.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.tensor_parallel import Exchange

Seconds = Callable[[str, int], float]  # of a collective: (kind, size in bytes)


@dataclass(frozen=True)
class SplitStep:
    """One step over ``ranks``. ``share_s``: products of one rank; ``exchange_s``: all collectives.

    ``cores``: processors that the ranks share; None where each rank has a device of its own.
    """

    share_s: float
    exchange_s: float
    ranks: int
    cores: int | None = None

    def __post_init__(self) -> None:
        """Refuse counts below 1 and negative times."""
        counts = min(self.ranks, self.ranks if self.cores is None else self.cores)
        if counts < 1 or min(self.share_s, self.exchange_s) < 0:
            raise UsageError(f"{self}: ranks and cores are at least 1, times not negative")

    @property
    def rounds(self) -> int:
        """Turns until every rank's share is done when a share stays on its core: ``ceil(n/c)``."""
        return -(-self.ranks // min(self.cores or self.ranks, self.ranks))

    @property
    def seconds(self) -> float:
        """The step: ranks wait for each other twice per layer, so the last turn counts."""
        return self.rounds * self.share_s + self.exchange_s

    @property
    def least_s(self) -> float:
        """The step if shares could be cut anywhere between cores: ``n/c`` turns."""
        return max(1.0, self.ranks / (self.cores or self.ranks)) * self.share_s + self.exchange_s


def exchange_s(exchanges: Iterable[Exchange], *, seconds: Seconds) -> float:
    """All collectives of a step, one after the other, by a cost per call."""
    return sum(one.count * seconds(one.kind, one.size_bytes) for one in exchanges)


def ring_rounds(kind: str, *, ranks: int) -> int:
    """Rounds of messages of one collective on a ring. Raises UsageError for another kind."""
    if kind not in ("all_reduce", "all_gather"):
        raise UsageError(f"kind is {kind!r}; a split layer needs all_reduce and all_gather")
    return (ranks - 1) * (2 if kind == "all_reduce" else 1)


def ring_seconds(*, ranks: int, alpha_s: float, bandwidth_bytes_s: float) -> Seconds:
    """The cost per call on a ring: ``rounds * (alpha + S / (n * bandwidth))``."""

    def seconds(kind: str, size_bytes: int) -> float:
        rounds = ring_rounds(kind, ranks=ranks)
        return rounds * (alpha_s + size_bytes / ranks / bandwidth_bytes_s)

    return seconds


def split_gain(whole_s: float, *, ranks: int, exchange_s: float, repeated_s: float = 0.0) -> float:
    """How many times as fast the step is with one device per rank; below 1 it loses.

    ``repeated_s``: part of ``whole_s`` that every rank does in full (norms, host work).

    Raises UsageError for a part larger than the whole, or values out of range.
    """
    if ranks < 1 or not 0 <= repeated_s <= whole_s or whole_s <= 0 or exchange_s < 0:
        raise UsageError(
            f"whole {whole_s}, repeated {repeated_s}, exchange {exchange_s} s over {ranks} ranks; "
            "allowed: whole above 0, repeated 0 up to the whole, exchange from 0, ranks from 1"
        )
    return whole_s / (repeated_s + (whole_s - repeated_s) / ranks + exchange_s)


def break_even_latency_s(
    whole_s: float,
    exchanges: Iterable[Exchange],
    *,
    ranks: int,
    bandwidth_bytes_s: float,
    repeated_s: float = 0.0,
) -> float | None:
    """The latency per message at which a split step is as fast as the whole one.

    None where the bytes alone already take longer than the split saves.
    """
    rounds, round_bytes = _rounds_and_bytes(exchanges, ranks)
    left_s = _saved_s(whole_s, ranks, repeated_s) - round_bytes / bandwidth_bytes_s
    return left_s / rounds if rounds and left_s > 0 else None


def break_even_bandwidth(
    whole_s: float,
    exchanges: Iterable[Exchange],
    *,
    ranks: int,
    alpha_s: float,
    repeated_s: float = 0.0,
) -> float | None:
    """Bytes/s of each rank's link at which a split step is as fast as the whole one.

    None where the latencies alone already take longer than the split saves.
    """
    rounds, round_bytes = _rounds_and_bytes(exchanges, ranks)
    left_s = _saved_s(whole_s, ranks, repeated_s) - rounds * alpha_s
    return round_bytes / left_s if left_s > 0 else None


def _saved_s(whole_s: float, ranks: int, repeated_s: float) -> float:
    split_gain(whole_s, ranks=ranks, exchange_s=0.0, repeated_s=repeated_s)  # checks the values
    return (whole_s - repeated_s) * (1 - 1 / ranks)


def _rounds_and_bytes(exchanges: Iterable[Exchange], ranks: int) -> tuple[int, float]:
    """Rounds of a whole step, and the bytes each rank sends in them."""
    listed = list(exchanges)
    rounds = sum(one.count * ring_rounds(one.kind, ranks=ranks) for one in listed)
    return rounds, sum(one.payload_bytes(ranks=ranks) for one in listed)
