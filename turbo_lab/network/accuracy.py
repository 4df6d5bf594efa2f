"""How well the fitted cost foretells sizes it has not seen, beside what two equal runs differ by.

Two passes of one measurement are compared in two ways, at the held-out sizes only: a curve fitted
on the other sizes of one pass against the other pass (the model's error), and the first pass
itself against the other (A/A, the noise that no model can be better than). Both ways round.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.network.fitted import MeasuredCollective
from turbo_lab.network.piecewise import fit_message_cost

LIMIT = 0.15
Key = tuple[str, int]


@dataclass(frozen=True)
class Accuracy:
    """Relative errors at held-out sizes. ``kind`` "all" and ``ranks`` 0: everything together.

    ``errors``: of the model, ``noise``: of the other pass; in the same order.
    """

    kind: str
    ranks: int
    errors: tuple[float, ...]
    noise: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median error of the model."""
        return statistics.median(self.errors)

    @property
    def worst(self) -> float:
        """Largest error of the model."""
        return max(self.errors)

    @property
    def same_again(self) -> float:
        """Median difference of two runs of the same measurement (A/A)."""
        return statistics.median(self.noise)

    def within(self, limit: float = LIMIT, *, times_noise: float = 1.0) -> bool:
        """True when the median error is at most ``limit``, or so many times the A/A noise."""
        return self.median <= max(limit, times_noise * self.same_again)


def held_out_accuracy(passes: Sequence[Sequence[MeasuredCollective]]) -> tuple[Accuracy, ...]:
    """One row for each kind and number of ranks; every other size is held out, the ends are not.

    Raises UsageError for fewer than two passes, other sizes in one of them, or too few sizes.
    """
    if len(passes) < 2:
        raise UsageError(f"{len(passes)} passes; the noise of a measurement needs at least two")
    tables = [_by_key(one) for one in passes]
    return tuple(_accuracy(key, [table.get(key, {}) for table in tables]) for key in tables[0])


def together(rows: Sequence[Accuracy]) -> Accuracy:
    """All rows as one."""
    if not rows:
        raise UsageError("there are no rows to put together")
    return Accuracy(
        "all", 0,
        tuple(error for row in rows for error in row.errors),
        tuple(error for row in rows for error in row.noise),
    )  # fmt: skip


def accuracy_text(rows: Sequence[Accuracy], *, limit: float = LIMIT) -> str:
    """The table: median and worst error of the model, A/A, and whether that is within bounds."""
    lines = [f"# {'kind':<15}{'ranks':>6}{'sizes':>7}{'error':>9}{'worst':>9}{'A/A':>9}  within"]
    for row in [*rows, together(rows)]:
        told = "yes" if row.within(limit) else "no"
        lines.append(
            f"  {row.kind:<15}{row.ranks or '':>6}{len(row.errors):>7}{row.median:>9.1%}"
            f"{row.worst:>9.1%}{row.same_again:>9.1%}  {told}"
        )
    return "\n".join([*lines, f"# within: at most {limit:.0%}, or the A/A noise"])


def _accuracy(key: Key, tables: Sequence[dict[int, float]]) -> Accuracy:
    sizes = sorted(tables[0])
    hidden = sizes[1:-1:2]
    if not hidden or any(sorted(table) != sizes for table in tables):
        raise UsageError(
            f"{key[0]} over {key[1]} ranks: sizes {sizes}; needed: the same three or more sizes in "
            "all passes"
        )
    errors, noise = [], []
    for first, other in itertools.permutations(tables, 2):
        cost = fit_message_cost([(size, first[size]) for size in sizes if size not in hidden])
        errors += [abs(cost.seconds(size) - other[size]) / other[size] for size in hidden]
        noise += [abs(first[size] - other[size]) / other[size] for size in hidden]
    return Accuracy(*key, tuple(errors), tuple(noise))


def _by_key(rows: Sequence[MeasuredCollective]) -> dict[Key, dict[int, float]]:
    found: dict[Key, dict[int, float]] = {}
    for row in rows:
        found.setdefault((row.kind, row.ranks), {})[row.total_bytes] = row.seconds
    return found
