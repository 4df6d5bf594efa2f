"""What the steps of one replica took, run-length coded, and the token times that follow from it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from turbo_lab.metrics.timeline import Chunk, ChunkRun
from turbo_lab.sim.clock import run_fs, to_s
from turbo_lab.sim.job import Job


class StepLog:
    """Runs of steps: number of the first, when it began, its length, growth per step, count."""

    __slots__ = ("count", "first", "growth", "length", "start")

    def __init__(self) -> None:
        self.first: list[int] = []
        self.start: list[int] = []
        self.length: list[int] = []
        self.growth: list[int] = []
        self.count: list[int] = []

    def add(self, first: int, start_fs: int, length_fs: int, growth_fs: int, count: int) -> None:
        """Add a run: steps ``first + 1`` to ``first + count``."""
        self.first.append(first)
        self.start.append(start_fs)
        self.length.append(length_fs)
        self.growth.append(growth_fs)
        self.count.append(count)

    def end_s(self, row: int, done: int) -> float:
        """When ``done`` steps of a run were over."""
        return to_s(self.start[row] + run_fs(done, self.length[row], self.growth[row]))

    def chunks(self, after: int, last: int, tokens: int) -> Iterator[Chunk | ChunkRun]:
        """``tokens`` per step from ``after + 1`` to ``last``.

        A run of n steps becomes one ChunkRun with equal gaps: its first and last token are exact,
        those between are at most ``growth * n^2 / 8`` off.
        """
        row = bisect_right(self.first, after) - 1
        while after < last:
            begin = after - self.first[row]
            end = min(last - self.first[row], self.count[row])
            first_s, last_s = self.end_s(row, begin + 1), self.end_s(row, end)
            if end - begin == 1:
                yield Chunk(first_s, tokens)
            else:
                count = end - begin
                yield ChunkRun(first_s, (last_s - first_s) / (count - 1), count, tokens)
            after = self.first[row] + end
            row += 1


def reply_chunks(job: Job) -> tuple[Chunk | ChunkRun, ...]:
    """All tokens of a finished job, in the order of their times."""
    out: list[Chunk | ChunkRun] = []
    for log, first, last, tokens in job.bursts or ():
        if log is None:
            out.append(Chunk(to_s(first), tokens))
        else:
            out.extend(log.chunks(first, last, tokens))
    return tuple(out)
