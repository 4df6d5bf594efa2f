"""Several collectives, sizes and numbers of ranks in one run, in turns: rows for the cost model.

Every pass runs everything once, so two passes are two runs of the same measurement on the same
machine a few seconds apart (A/A). The time of a row is the median over its calls, each of the rank
that was slowest in it; nccl-tests' mean is in ``parallel.sweep``.

What torchrun printed for ``survey_job`` (see ``docs/multi-machine.md``) becomes the table of the
model's error: ``python -m turbo_lab.parallel.survey FILE``
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import KiB, MiB
from turbo_lab.network.fitted import MeasuredCollective
from turbo_lab.parallel.sweep import Row, check_kind, sweep_job, sweep_rows, table_row

if TYPE_CHECKING:
    from turbo_lab.parallel.comm import Comm
    from turbo_lab.parallel.launch import Place

SIZES = tuple(KiB * 2**step for step in range(15))  # 1 KiB to 16 MiB
KINDS = ("all_reduce", "all_gather", "all_to_all")
CALLS = (5, 60)  # fewest and most timed calls of a size
CALL_BYTES = 16 * MiB  # timed calls of a size move about so much


@dataclass(frozen=True)
class Surveyed:
    """One kind, number of ranks and size in one pass. ``wrong``: false elements, all ranks."""

    kind: str
    ranks: int
    pass_number: int
    size_bytes: int
    seconds: float
    calls: int
    wrong: int

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Surveyed:
        """The inverse."""
        return cls(**row)

    @property
    def measured(self) -> MeasuredCollective:
        """As the cost model takes it."""
        return MeasuredCollective(self.kind, self.ranks, self.size_bytes, self.seconds)


def calls_of(size_bytes: int) -> int:
    """Timed calls of a size: many of the small ones, whose times scatter, few of the large."""
    least, most = CALLS
    return max(least, min(most, CALL_BYTES // max(1, size_bytes)))


def survey_job(
    comm: Comm, *, kinds: Sequence[str], sizes: Sequence[int], ranks: Sequence[int], passes: int
) -> list[dict[str, Any]]:
    """The survey on one rank. Groups are the first n ranks; the others wait meanwhile."""
    groups = {n: comm.split(_first(n, comm.size)) for n in ranks if n < comm.size}
    groups |= {comm.size: comm}
    rows = []
    for number in range(passes):
        for kind in kinds:
            for n in ranks:
                if comm.rank < n:
                    rows += [
                        {"kind": kind, "ranks": n, "pass_number": number} | row
                        for size in sizes
                        for row in sweep_job(
                            groups[n], kind=kind, sizes=[size], iterations=calls_of(size), warm_up=1
                        )
                    ]
                comm.barrier()
    return rows


def survey_rows(results: Sequence[Sequence[dict[str, Any]]]) -> list[Surveyed]:
    """What all ranks measured, put together row by row."""
    found: dict[tuple[int, str, int, int], list[dict[str, Any]]] = {}
    for rows in results:
        for row in rows:
            key = row["pass_number"], row["kind"], row["ranks"], row["size_bytes"]
            found.setdefault(key, []).append(row)
    surveyed = []
    for (number, kind, ranks, size), same in found.items():
        row = sweep_rows(kind, [[one] for one in same])[0]
        seconds = statistics.median(row.samples_s) if row.samples_s else row.time_s
        calls = len(row.samples_s)
        surveyed.append(Surveyed(kind, ranks, number, size, seconds, calls, row.wrong))
    return surveyed


def survey(
    *,
    kinds: Sequence[str] = KINDS,
    sizes: Sequence[int] = SIZES,
    ranks: Sequence[int] = (2, 3, 4),
    passes: int = 2,
    place: Callable[[int], Place] | None = None,
    deadline_s: float = 240.0,
) -> list[Surveyed]:
    """Start the ranks and measure all of it. Raises UsageError for values out of range."""
    from turbo_lab.parallel.launch import launch

    for kind in kinds:
        check_kind(kind)
    if not kinds or not sizes or passes < 1 or min(ranks, default=0) < 2:
        raise UsageError(
            f"kinds {list(kinds)}, sizes {list(sizes)}, ranks {list(ranks)}, passes {passes}; "
            "allowed: at least one kind, size and pass, and 2 or more ranks"
        )
    run = launch(
        "turbo_lab.parallel.survey:survey_job", ranks=max(ranks), threads=1, place=place,
        deadline_s=deadline_s,
        arguments={"kinds": list(kinds), "sizes": list(sizes), "ranks": sorted(set(ranks)),
                   "passes": passes},
    )  # fmt: skip
    return survey_rows(run.results)


def points(rows: Sequence[Surveyed], *, kind: str, ranks: int) -> list[tuple[float, float]]:
    """(bytes, seconds) of one kind and number of ranks by size; medians over the passes."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if (row.kind, row.ranks) == (kind, ranks):
            found.setdefault(row.size_bytes, []).append(row.seconds)
    return [(float(size), statistics.median(found[size])) for size in sorted(found)]


def by_pass(rows: Sequence[Surveyed]) -> list[list[MeasuredCollective]]:
    """The rows of each pass, as ``network.accuracy`` takes them."""
    numbers = sorted({row.pass_number for row in rows})
    return [[row.measured for row in rows if row.pass_number == n] for n in numbers]


def table_rows(
    rows: Sequence[Surveyed], *, kind: str, ranks: int, pass_number: int = 0
) -> list[Row]:
    """The rows of one table of nccl-tests (``parallel.sweep.table_text``), by size."""
    kept = [r for r in rows if (r.kind, r.ranks, r.pass_number) == (kind, ranks, pass_number)]
    return [
        table_row(kind, r.size_bytes, r.seconds, ranks=ranks, wrong=r.wrong)
        for r in sorted(kept, key=lambda row: row.size_bytes)
    ]


def _first(count: int, total: int) -> list[list[int]]:
    return [list(range(count)), *([rank] for rank in range(count, total))]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the error of the cost model from a file with what torchrun printed.

    Raises UsageError where no line holds results.
    """
    from turbo_lab.network.accuracy import accuracy_text, held_out_accuracy

    (name,) = argv if argv is not None else sys.argv[1:]
    lines = [line for line in Path(name).read_text().splitlines() if line.startswith('{"ranks"')]
    if not lines:
        raise UsageError(f"{name} has no line of results; give the output of the host with rank 0")
    rows = survey_rows(json.loads(lines[-1])["results"])
    print(accuracy_text(held_out_accuracy(by_pass(rows))))


if __name__ == "__main__":
    main()
