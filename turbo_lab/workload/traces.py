"""Traces: when requests came and how long they were, read from files or drawn from a seed.

The project ships only traces of its own. Their lengths follow the quantiles of a public trace;
their order, their pairing of prompt and reply, and every row are invented.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.workload import arrivals
from turbo_lab.workload.trace_reader import read_requests

HEADER = ("arrival_s", "prompt_tokens", "output_tokens")


@dataclass(frozen=True)
class TraceRow:
    """One request: seconds from the start of the trace, and its lengths in tokens."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Marginal:
    """Quantiles of one length: (percent, tokens), ascending, from 0 to 100."""

    points: tuple[tuple[float, float], ...]

    def at(self, share: float) -> float:
        """The length below which this share of requests lies; log-linear between the points."""
        percent = 100 * share
        for (low, a), (high, b) in pairwise(self.points):
            if percent <= high:
                return math.exp(
                    math.log(a) + (math.log(b) - math.log(a)) * (percent - low) / (high - low)
                )
        return self.points[-1][1]


@dataclass(frozen=True)
class TraceShape:
    """What a drawn trace shall look like. ``gap_cv``: coefficient of variation of the gaps."""

    prompt: Marginal
    output: Marginal
    rate_per_s: float
    gap_cv: float


def azure_conversation() -> TraceShape:
    """The shape of AzureLLMInferenceTrace_conv (2023): 19,366 requests of a chat service.

    Quantiles, rate and gaps were computed from the public file. Source:
    https://github.com/Azure/AzurePublicDataset, CC-BY-4.0.
    """
    percents = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)
    prompt = (2, 29, 181, 207, 396, 1020, 1189, 2734, 4083, 4142, 6179, 14050)
    output = (7, 16, 41, 54, 85, 129, 395, 424, 451, 601, 954, 1000)
    return TraceShape(
        prompt=Marginal(tuple(zip(percents, prompt, strict=True))),
        output=Marginal(tuple(zip(percents, output, strict=True))),
        rate_per_s=5.53,
        gap_cv=1.09,
    )


def draw_trace(shape: TraceShape, *, count: int, seed: int) -> list[TraceRow]:
    """``count`` requests of this shape, fully determined by the seed.

    Lengths are the shape's quantiles at equal steps, shuffled, so that even a short trace has the
    wanted distribution; prompt and reply are independent (in the Azure trace their rank
    correlation is 0.07). Gaps are gamma-distributed.
    """
    if count < 1:
        raise UsageError(f"count is {count}, it must be at least 1")
    rng = np.random.default_rng(seed)
    shares = [(i + 0.5) / count for i in range(count)]
    prompts = rng.permutation([round(shape.prompt.at(s)) for s in shares])
    outputs = rng.permutation([round(shape.output.at(s)) for s in shares])
    times = arrivals.gamma(count, rate_per_s=shape.rate_per_s, shape=1 / shape.gap_cv**2, seed=seed)
    return [
        TraceRow(round(t, 3), int(p), int(o))
        for t, p, o in zip(times, prompts, outputs, strict=True)
    ]


def write_trace(path: str | Path, rows: Iterable[TraceRow]) -> None:
    """Write rows as CSV with a header."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows((r.arrival_s, r.prompt_tokens, r.output_tokens) for r in rows)


def read_trace(path: str | Path) -> list[TraceRow]:
    """Arrivals and lengths of a file in any format of ``trace_reader``, in order of arrival.

    Raises UsageError naming the file and the line that cannot be used.
    """
    requests = read_requests(path, sort=True)
    return [TraceRow(r.arrival_s, r.input_tokens, r.output_tokens) for r in requests]


def bundled_trace(name: str = "chat") -> list[TraceRow]:
    """A trace that the project ships (``data/traces/NAME.csv``). Raises UsageError."""
    folder = repository_root() / "data" / "traces"
    path = folder / f"{name}.csv"
    if not path.exists():
        known = sorted(p.stem for p in folder.glob("*.csv"))
        raise UsageError(f"there is no bundled trace {name!r}; allowed: {', '.join(known)}.")
    return read_trace(path)
