"""What one rank sent: payload of each kind of call, counted and grouped by a label."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.network.busbw import busbw_factor

KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv",
)  # fmt: skip


def sent_bytes(kind: str, payload_bytes: int, *, ranks: int) -> float:
    """Bytes that leave one rank on average, by the bandwidth-optimal algorithm of each kind.

    ``payload_bytes`` S is the size as nccl-tests counts it: the whole vector; for all_gather and
    reduce_scatter the gathered one, for all_to_all one rank's whole send buffer (even splits).
    Ring all_reduce 2(n-1)/n S; all_gather, reduce_scatter, all_to_all, broadcast (n-1)/n S; send S.
    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md. Raises UsageError for an unknown kind.
    """
    if kind not in KINDS:
        raise UsageError(f"kind is {kind!r}.{did_you_mean(kind, list(KINDS))}")
    if kind in ("send", "recv"):
        return float(payload_bytes) if kind == "send" else 0.0
    if kind == "broadcast":  # somebody sends it to each of the others
        return (ranks - 1) / ranks * payload_bytes
    return busbw_factor(kind, ranks) * payload_bytes


@dataclass
class Tally:
    """All calls of one kind under one label on one rank.

    ``seconds``: time inside the calls; None where a call's time is unknown (asynchronous calls).
    ``how``: what the backend was really asked to do where it lacks the operation.
    """

    kind: str
    label: str
    calls: int = 0
    payload_bytes: int = 0
    sent_bytes: float = 0.0
    seconds: float | None = 0.0
    how: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return dict(vars(self))


@dataclass
class Ledger:
    """The tallies of one rank, in the order of their first call."""

    ranks: int
    rows: dict[tuple[str, str], Tally] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        label: str,
        *,
        payload_bytes: int,
        seconds: float | None,
        sent: float | None = None,
        how: str = "",
    ) -> None:
        """Count one call. ``sent``: bytes that left this rank, where it is known better."""
        row = self.rows.setdefault((kind, label), Tally(kind, label, how=how))
        row.calls += 1
        row.payload_bytes += payload_bytes
        row.sent_bytes += (
            sent_bytes(kind, payload_bytes, ranks=self.ranks) if sent is None else sent
        )
        row.seconds = None if seconds is None or row.seconds is None else row.seconds + seconds

    def to_list(self) -> list[dict[str, Any]]:
        """Every tally as a dict."""
        return [row.to_dict() for row in self.rows.values()]


def total(rows: Iterable[dict[str, Any]], key: str = "payload_bytes", **where: str) -> float:
    """Sum of one figure over the tallies that match, e.g. ``total(rows, label="mlp")``."""
    return sum(row[key] for row in rows if all(row[name] == value for name, value in where.items()))
