"""A sweep over message sizes as nccl-tests does it: real ranks, checked results, time per call.

The time of a row is the mean over the iterations of the slowest rank, after warm-up calls, all
ranks started together. Results are checked element by element against what they must be.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import UnmeasuredError, UsageError, did_you_mean
from turbo_lab.core.units import GiB, KiB, MiB
from turbo_lab.network.busbw import NCCL_TESTS_NAMES, algbw, busbw

if TYPE_CHECKING:
    from turbo_lab.parallel.comm import Comm

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")
SIZES = tuple(KiB * 4**step for step in range(8))  # 1 KiB to 16 MiB
FLOAT_BYTES = 4
_SUFFIXES = {"K": KiB, "M": MiB, "G": GiB}


@dataclass(frozen=True)
class Row:
    """One size. Bandwidths in bytes/s; ``wrong``: elements with a false value, all ranks.

    ``size_bytes``: S as nccl-tests counts it (gathered size for all_gather, reduce_scatter).
    ``samples_s``: every timed call, of the rank that was slowest in it; empty on GPUs, where
    calls are queued and only their sum has a time.
    """

    size_bytes: int
    count: int
    time_s: float
    algbw_bytes_s: float
    busbw_bytes_s: float
    wrong: int
    samples_s: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sizes in bytes of ``"1K,64K,1M"``; K, M and G are binary, as in nccl-tests.

    Raises UsageError naming the wrong entry.
    """
    found = []
    for word in text.split(","):
        number, suffix = word.strip().upper().removesuffix("IB").removesuffix("B"), 1
        if number and number[-1] in _SUFFIXES:
            number, suffix = number[:-1], _SUFFIXES[number[-1]]
        if not number.isdigit() or int(number) < 1:
            raise UsageError(f"size {word.strip()!r}; allowed: whole bytes, or 64K, 1M, 1G")
        found.append(int(number) * suffix)
    return tuple(found)


def whole_size(kind: str, size_bytes: int, *, ranks: int) -> int:
    """The nearest size not above that has whole floats, equal on all ranks; one each at least."""
    unit = FLOAT_BYTES * (1 if kind in ("all_reduce", "broadcast", "sendrecv") else ranks)
    return max(unit, size_bytes // unit * unit)


def sweep_job(
    comm: Comm, *, kind: str, sizes: Sequence[int], iterations: int = 10, warm_up: int = 2
) -> list[dict[str, Any]]:
    """The sweep on one rank: per size ``size_bytes, time_s`` (mean)``, samples_s, wrong, how``."""
    rows = []
    for size in sizes:
        whole = whole_size(kind, size, ranks=comm.size)
        bench = _Bench(comm, kind, whole)
        wrong = bench.wrong()
        for _ in range(warm_up):
            bench.call()
        comm.synchronise()
        comm.barrier()
        marks_s = [time.perf_counter()]
        for _ in range(iterations):
            bench.call()
            marks_s.append(time.perf_counter())
        comm.synchronise()  # once, as nccl-tests does: calls on a GPU queue up
        end_s = time.perf_counter()
        calls_s = [after - before for before, after in itertools.pairwise(marks_s)]
        rows.append({
            "size_bytes": whole,
            "time_s": (end_s - marks_s[0]) / iterations,
            "samples_s": calls_s if comm.device.type == "cpu" else [],
            "wrong": wrong,
        })  # fmt: skip
    how = {tally["how"] for tally in comm.tallies()} - {""}
    return [{**row, "how": " ".join(sorted(how))} for row in rows]


def sweep_rows(kind: str, per_rank: Sequence[Sequence[dict[str, Any]]]) -> list[Row]:
    """Rows of the table from what each rank measured: the slowest rank counts.

    Raises UnmeasuredError when the ranks did not measure the same sizes.
    """
    ranks, rows = len(per_rank), []
    for same in zip(*per_rank, strict=True):
        size = same[0]["size_bytes"]
        if any(one["size_bytes"] != size for one in same):
            raise UnmeasuredError("the ranks measured different sizes")
        rows.append(
            table_row(
                kind, size, max(one["time_s"] for one in same), ranks=ranks,
                wrong=sum(one["wrong"] for one in same),
                samples_s=tuple(map(max, zip(*(one["samples_s"] for one in same), strict=True))),
            )
        )  # fmt: skip
    return rows


def table_row(
    kind: str,
    size_bytes: int,
    seconds: float,
    *,
    ranks: int,
    wrong: int = 0,
    samples_s: tuple[float, ...] = (),
) -> Row:
    """One row of nccl-tests' table from a size and its time."""
    count = size_bytes // FLOAT_BYTES
    if kind in ("all_gather", "reduce_scatter", "all_to_all"):
        count //= ranks
    rates = algbw(size_bytes, seconds), busbw(kind, size_bytes, seconds, ranks)
    return Row(size_bytes, count, seconds, *rates, wrong, samples_s)


def table_text(kind: str, rows: Sequence[Row]) -> str:
    """The table in the layout of nccl-tests (out of place): sizes in B, times in us, GB/s."""
    reduces = kind in ("all_reduce", "reduce_scatter")
    operation = "sum" if reduces else "none"
    lines = [
        f"#{'size':>12}{'count':>13}{'type':>8}{'redop':>7}{'time':>10}{'algbw':>9}{'busbw':>9}"
        f"{'#wrong':>8}",
        f"#{'(B)':>12}{'(elements)':>13}{'':>15}{'(us)':>10}{'(GB/s)':>9}{'(GB/s)':>9}",
    ]
    lines += [
        f" {row.size_bytes:>12}{row.count:>13}{'float':>8}{operation:>7}{row.time_s * 1e6:>10.1f}"
        f"{row.algbw_bytes_s / 1e9:>9.3f}{row.busbw_bytes_s / 1e9:>9.3f}{row.wrong:>8}"
        for row in rows
    ]
    average = sum(row.busbw_bytes_s for row in rows) / len(rows) / 1e9
    wrong = sum(row.wrong for row in rows)
    lines += [
        f"# Out of bounds values : {wrong} {'OK' if wrong == 0 else 'FAILED'}",
        f"# Avg bus bandwidth    : {average:.4f}",
    ]
    return "\n".join(lines)


def check_kind(kind: str) -> str:
    """The kind as used here; nccl-tests' names (``alltoall``) are taken too.

    Raises UsageError for one that the sweep does not run.
    """
    name = NCCL_TESTS_NAMES.get(kind, kind)
    if name not in KINDS:
        raise UsageError(f"There is no collective {kind!r} to sweep.{did_you_mean(kind, [*KINDS])}")
    return name


class _Bench:
    """Buffers of one size, allocated once as in nccl-tests, and the call on them."""

    def __init__(self, comm: Comm, kind: str, size: int) -> None:
        import torch

        self.comm, self.kind = comm, kind
        floats, n = size // FLOAT_BYTES, comm.size
        parts = 1 if kind in ("all_reduce", "broadcast", "sendrecv") else n
        # Small whole numbers: their sums are exact in float32.
        self._index = torch.arange(floats, device=comm.device, dtype=torch.float32) % 1024
        sends = floats // n if kind == "all_gather" else floats
        gets = floats // parts if kind == "reduce_scatter" else floats
        self._source = self._values(comm.rank)[:sends].contiguous()
        self._target = torch.zeros(gets, device=comm.device)

    def call(self) -> Any:
        """One operation; returns the buffer with the result."""
        comm, source, target = self.comm, self._source, self._target
        if self.kind == "all_reduce":
            return comm.all_reduce(source)
        if self.kind == "broadcast":
            return comm.broadcast(source)
        if self.kind == "all_gather":
            return comm.all_gather(source, out=target)
        if self.kind == "reduce_scatter":
            return comm.reduce_scatter(source, out=target)
        if self.kind == "all_to_all":
            return comm.all_to_all(source, out=target)
        to, origin = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        return comm.exchange(source, to=to, out=target, source=origin)

    def wrong(self) -> int:
        """Elements that differ from what the operation must give, after its first call."""
        return int((self.call() != self._wanted()).sum())

    def _wanted(self) -> Any:
        import torch

        n, rank, ranks = self.comm.size, self.comm.rank, range(self.comm.size)
        if self.kind == "broadcast":
            return self._values(0)
        if self.kind == "sendrecv":
            return self._values((rank - 1) % n)
        if self.kind == "all_gather":
            piece = len(self._index) // n
            return torch.cat([self._values(r)[:piece] for r in ranks])
        if self.kind == "all_to_all":
            return torch.cat([self._values(r).view(n, -1)[rank] for r in ranks])
        total = n * self._index + n * (n - 1) / 2
        return total if self.kind == "all_reduce" else total.view(n, -1)[rank]

    def _values(self, rank: int) -> Any:
        return self._index + rank
