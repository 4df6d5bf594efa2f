"""Bandwidth of a collective as nccl-tests prints it: independent of the number of ranks.

``algbw = S / t``; ``busbw = algbw * factor``. The factor turns the bytes of the operation into
the bytes that the busiest link must carry. S: for all_gather and reduce_scatter the gathered
(total) size, for all_to_all, gather and scatter all of one rank's buffer, else the tensor.
Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md and src/*.cu.
"""

from __future__ import annotations

import math

from turbo_lab.core.errors import UsageError, did_you_mean

SHARED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
WHOLE = ("broadcast", "reduce", "sendrecv")
KINDS = ("all_reduce", *SHARED, *WHOLE)
NCCL_TESTS_NAMES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}  # fmt: skip


def collective_kind(name: str) -> str:
    """The kind's name as used here; nccl-tests' (``alltoall``) is accepted too. UsageError."""
    kind = NCCL_TESTS_NAMES.get(name, name)
    if kind not in KINDS:
        raise UsageError(f"There is no collective {name!r}.{did_you_mean(name, list(KINDS))}")
    return kind


def busbw_factor(kind: str, ranks: int) -> float:
    """Bytes on the busiest link per byte of S: ``2(n-1)/n``, ``(n-1)/n`` or 1."""
    name = collective_kind(kind)
    _require_ranks(ranks)
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if name in SHARED else 1.0


def algbw(bytes: float, seconds: float) -> float:
    """Algorithm bandwidth in bytes/s: ``S / t``."""
    if not 0 <= bytes < math.inf or not 0 < seconds < math.inf:
        raise UsageError(
            f"{bytes} bytes in {seconds} s; both must be finite, bytes 0 or more, seconds above 0"
        )
    return bytes / seconds


def busbw(kind: str, bytes: float, seconds: float, ranks: int) -> float:
    """Bus bandwidth in bytes/s (nccl-tests prints it in GB/s, 10^9).

    Args:
        kind: one of ``KINDS``.
        bytes: the operation's size S (see the module).
        seconds: time of one operation.
        ranks: 2 or more.

    Raises UsageError for an unknown kind or a value out of range.
    """
    return algbw(bytes, seconds) * busbw_factor(kind, ranks)


def seconds_at(kind: str, bytes: float, busbw_bytes_s: float, ranks: int) -> float:
    """The inverse: seconds that an operation takes at that bus bandwidth."""
    if not busbw_bytes_s > 0:
        raise UsageError(f"busbw is {busbw_bytes_s} bytes/s; it must be above 0")
    return bytes * busbw_factor(kind, ranks) / busbw_bytes_s


def _require_ranks(ranks: int) -> None:
    if not ranks >= 2 or ranks != int(ranks):
        raise UsageError(f"{ranks} ranks; a collective needs a whole number of at least 2")
