"""The cost of collectives fitted on measured ones, and how well it foretells the others.

``fit_collectives`` keeps one curve in pieces for every kind and number of ranks: right where ranks
share cores, as then each further rank changes the cost of a message too. ``fit_per_message`` keeps
one curve for a message of a round and multiplies by the algorithm's rounds: it also foretells
numbers of ranks that were not measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.network.busbw import collective_kind
from turbo_lab.network.cost import Network, collective_s, message_point
from turbo_lab.network.piecewise import HeldOut, MessageCost, Point, compare, fit_message_cost


@dataclass(frozen=True)
class MeasuredCollective:
    """One measured operation (sizes as in ``busbw``). Repeats are rows of their own."""

    kind: str
    ranks: int
    total_bytes: int
    seconds: float


@dataclass(frozen=True)
class CollectiveCurves:
    """Seconds by size, one curve for every kind and number of ranks."""

    curves: Mapping[tuple[str, int], MessageCost]

    def seconds(self, kind: str, total_bytes: int, *, ranks: int) -> float:
        """Seconds of an operation. Raises UsageError for a kind or ranks that were not measured."""
        key = (collective_kind(kind), ranks)
        if key not in self.curves:
            known = ", ".join(f"{name} over {count} ranks" for name, count in sorted(self.curves))
            raise UsageError(f"{kind} over {ranks} ranks was not measured; measured: {known}")
        return self.curves[key].seconds(total_bytes)


def fit_collectives(measured: Sequence[MeasuredCollective]) -> CollectiveCurves:
    """One curve per kind and number of ranks; at least two sizes of each."""
    return CollectiveCurves(
        {key: fit_message_cost(group) for key, group in _groups(measured).items()}
    )


def held_out_collectives(measured: Sequence[MeasuredCollective]) -> HeldOut:
    """Fit every group on every other size, its ends among them; errors on all sizes between."""
    fits: list[HeldOut] = []
    errors: list[float] = []
    for (kind, ranks), group in _groups(measured).items():
        sizes = sorted({size for size, _ in group})
        hidden = set(sizes[1:-1:2])
        if not hidden:
            raise UsageError(
                f"{kind} over {ranks} ranks has {len(sizes)} sizes; holding some out needs three"
            )
        cost = fit_message_cost([p for p in group if p[0] not in hidden])
        tested = [p for p in group if p[0] in hidden]
        fits.append(compare(cost, tested))
        errors += [abs(cost.seconds(size) - seconds) / seconds for size, seconds in tested]
    noises = [fit.noise for fit in fits if fit.noise is not None]
    return HeldOut(
        len(errors), statistics.median(errors), max(errors),
        statistics.median(noises) if noises else None,
    )  # fmt: skip


def fit_per_message(
    measured: Sequence[MeasuredCollective], *, algorithm: str = "ring"
) -> MessageCost:
    """One curve of a message from operations of several kinds, sizes and numbers of ranks.

    Use it with ``Network.flat`` and ``collective_s`` for any number of ranks.
    """
    return fit_message_cost([
        message_point(m.kind, m.total_bytes, m.seconds, ranks=m.ranks, algorithm=algorithm)
        for m in measured
    ])  # fmt: skip


def compare_per_message(
    cost: MessageCost, measured: Sequence[MeasuredCollective], *, algorithm: str = "ring"
) -> HeldOut:
    """Relative errors of a message's curve on whole operations it may not have seen."""
    if not measured:
        raise UsageError("there are no operations to compare with")
    errors = [abs(_flat_s(cost, m, algorithm) - m.seconds) / m.seconds for m in measured]
    return HeldOut(len(errors), statistics.median(errors), max(errors), None)


def _flat_s(cost: MessageCost, one: MeasuredCollective, algorithm: str) -> float:
    network = Network.flat(one.ranks, cost)
    return collective_s(one.kind, one.total_bytes, network=network, algorithm=algorithm)


def _groups(measured: Sequence[MeasuredCollective]) -> dict[tuple[str, int], list[Point]]:
    found: dict[tuple[str, int], list[Point]] = {}
    for one in measured:
        key = (collective_kind(one.kind), one.ranks)
        found.setdefault(key, []).append((float(one.total_bytes), one.seconds))
    if not found:
        raise UsageError("there are no measured collectives to fit")
    return found
