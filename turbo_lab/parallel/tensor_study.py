"""The tensor-parallel study on own ranks: start it, read it, and foretell a split step.

A step of n ranks is forecast from two things that are measured without any sharded step: the share
of a rank (its products, nothing sent), and the cost of the collectives alone. ``run_study`` returns
plain data for a record; ``Study`` reads it. No torch here: replay works without.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from turbo_lab.core import host
from turbo_lab.core.errors import (
    MissingDependencyError,
    TurboLabError,
    UnmeasuredError,
    UsageError,
)
from turbo_lab.core.units import KiB
from turbo_lab.estimate.split_gain import SplitStep, exchange_s
from turbo_lab.models.spec import ModelSpec
from turbo_lab.network.fitted import (
    CollectiveCurves,
    MeasuredCollective,
    fit_collectives,
    held_out_collectives,
)
from turbo_lab.network.headers import HEADER_BYTES
from turbo_lab.network.links import open_hosts
from turbo_lab.network.piecewise import HeldOut
from turbo_lab.parallel.launch import Place, launch
from turbo_lab.parallel.sweep import SIZES
from turbo_lab.parallel.tensor_traffic import greedy_exchanges

WORK = "turbo_lab.parallel.tensor_work"
DEADLINE_S = 400.0
FLOAT_BYTES = 4
LEAST_TOP_BYTES = 32 * KiB  # collectives are timed up to here at least: a curve needs sizes
GATHER_BYTES = (16, 256, 4096)  # of each rank: one candidate, and more for a curve
PROMPTS = (
    "A river that runs through a dry land is shared by many towns, and every spring their people "
    "meet to decide how much water each of them may take from it.",
    "Write a short letter to a friend who has moved to a new city and does not know anybody there. "
    "Tell her what you did in your own first weeks.",
    "The old clock in the station hall has stopped at ten past four. Nobody remembers when, but "
    "the cleaner says that it was during the storm last winter.",
)
Phase = Literal["prefill", "decode"]
Point = tuple[int, int]  # (requests, prompt tokens of each)


def prompt_ids(model: str, *, tokens: int, texts: Sequence[str] = PROMPTS) -> list[list[int]]:
    """The first ``tokens`` token ids of each text, by the model's own tokenizer.

    Raises UsageError where a text is shorter.
    """
    tokenizer = _tokenizer(model)
    found = [tokenizer(text)["input_ids"] for text in texts]
    if short := [len(ids) for ids in found if len(ids) < tokens]:
        raise UsageError(f"tokens is {tokens}; the shortest text has {min(short)}")
    return [[int(one) for one in ids[:tokens]] for ids in found]


def texts_of(model: str, rows: Sequence[Sequence[int]]) -> list[str]:
    """Token ids as text, special tokens left out, as a server sends it."""
    return _tokenizer(model).batch_decode(list(rows), skip_special_tokens=True)


def _tokenizer(model: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingDependencyError("transformers", needed_for="reading token ids") from error
    return AutoTokenizer.from_pretrained(model)


def run_study(
    model: str | Mapping[str, Any],
    *,
    spec: ModelSpec,
    ranks: int,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    points: Sequence[Point],
    passes: int,
    decode_steps: int = 8,
) -> dict[str, Any]:
    """Start ``ranks`` ranks of one thread each and run the whole study in them.

    Args:
        model: folder with config.json and safetensors, or a config for seeded random weights.
        spec: of the same model.
        ranks: a number that the model splits over.
        prompts: token ids, all of one length, for the check.
        new_tokens: greedy tokens of the check.
        points: (requests, prompt tokens) to be timed.
        passes: how often everything is timed, in turns.
        decode_steps: decode steps of which the median counts.

    Raises DistributedError where a rank failed, UsageError where the model does not split.
    """
    cores = host.cores_granted()
    most = max(rows * tokens for rows, tokens in points) * spec.hidden * FLOAT_BYTES
    done = launch(
        f"{WORK}:study_job", ranks=ranks, threads=1, deadline_s=DEADLINE_S,
        arguments={
            "model": model, "prompts": prompts, "new_tokens": new_tokens, "points": list(points),
            "decode_steps": decode_steps, "passes": passes, "cores": cores,
            "sizes": [size for size in SIZES if size < max(4 * most, LEAST_TOP_BYTES)],
            "gathers": [ranks * size for size in GATHER_BYTES],
        },
    )  # fmt: skip
    return {
        "ranks": ranks, "points": [list(point) for point in points], "backend": done.backend,
        "cores": cores if done.device.startswith("cpu") else None,
        "rank": list(done.results),
    }  # fmt: skip


def run_replicas(
    model: str | Mapping[str, Any],
    *,
    ranks: int,
    prompts: Sequence[Sequence[int]],
    new_tokens: int = 3,
) -> list[dict[str, Any]]:
    """A model over more ranks than it has KV heads; one dict for each rank."""
    arguments = {"model": model, "prompts": prompts, "new_tokens": new_tokens}
    done = launch(
        f"{WORK}:replicas_job", ranks=ranks, threads=1, arguments=arguments, deadline_s=DEADLINE_S
    )
    return list(done.results)


def run_traffic(
    model: str | Mapping[str, Any],
    *,
    ranks: int,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    layers: int | None = None,
) -> list[dict[str, Any]]:
    """Greedy steps with every rank on a host of its own, whose interface counts what it sends.

    Raises UnmeasuredError where this machine allows no network namespaces.
    """
    try:
        opened = open_hosts(ranks, link=None, kind="namespaces")
    except TurboLabError as error:
        raise UnmeasuredError(f"no interface of its own for each rank: {error}") from error
    with opened as hosts:
        done = launch(
            f"{WORK}:traffic_job", ranks=ranks, threads=1, deadline_s=DEADLINE_S, backend="gloo",
            place=lambda rank: Place.on(hosts, rank),
            arguments={"model": model, "prompts": prompts, "new_tokens": new_tokens,
                       "layers": layers, "interface": hosts.interface(0)},
        )  # fmt: skip
    return list(done.results)


def carried_bytes(found: Sequence[Mapping[str, Any]] | None) -> int:
    """What TCP carried in ``run_traffic``, all ranks: the interfaces' count without headers.

    Raises UnmeasuredError where nothing was counted.
    """
    if not found:
        raise UnmeasuredError("no interface counted what the ranks sent")
    return sum(one["sent_bytes"] - HEADER_BYTES * one["sent_packets"] for one in found)


@dataclass(frozen=True)
class Study:
    """What ``run_study`` returned, read. Times are of the slowest rank, least of the passes.

    Other load can only make a step slower, so the least pass is nearest to the machine's own time.
    """

    raw: Mapping[str, Any]
    spec: ModelSpec

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None, *, spec: ModelSpec) -> Study:
        """Of what was observed. Where that is nothing, every figure raises UnmeasuredError."""
        return cls(raw or {}, spec)

    @property
    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """One dict for each rank."""
        if not self.raw:
            raise UnmeasuredError("the ranks were not run")
        return self.raw["rank"]

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self._rows)

    @property
    def points(self) -> list[Point]:
        """What was timed."""
        return [tuple(point) for point in self.raw["points"]] if self._rows else []

    @property
    def check(self) -> Mapping[str, Any]:
        """Rank 0's part of the check: tokens of both models, tallies, ``logit_error``."""
        return self._rows[0]["check"]

    def passes(self, what: str, point: Point, phase: Phase) -> list[float]:
        """Seconds of ``whole``, ``whole_wide``, ``share`` or ``sharded``, one for each pass."""
        column = {"prefill": 0, "decode": 1}[phase]
        number = self.points.index(tuple(point))
        rows = [rank[what] for rank in self._rows if rank[what]]
        if not rows:
            raise UnmeasuredError(f"no rank measured {what}")
        return [max(one[turn][number][column] for one in rows) for turn in range(len(rows[0]))]

    def seconds(self, what: str, point: Point, phase: Phase) -> float:
        """The least of the passes."""
        return min(self.passes(what, point, phase))

    def repeated_share(self, point: Point, phase: Phase) -> float:
        """Part of a whole step that every rank repeats: ``(n share / whole - 1) / (n - 1)``.

        From ``share = r + (whole - r) / n``: norms, the rotary table and each operation's start.
        """
        ratio = self.seconds("share", point, phase) / self.seconds("whole", point, phase)
        return max(0.0, (self.ranks * ratio - 1) / (self.ranks - 1))

    def noise(self) -> float:
        """Median spread of the passes of one sharded step: largest over smallest, less 1."""
        phases: tuple[Phase, ...] = ("prefill", "decode")
        spreads = [
            max(times) / min(times) - 1
            for point in self.points
            for phase in phases
            for times in [self.passes("sharded", point, phase)]
        ]
        return statistics.median(spreads)

    @cached_property
    def collectives(self) -> tuple[MeasuredCollective, ...]:
        """The collectives alone: every size once per pass, the median call of the slowest rank."""
        found = []
        for turn in range(len(self._rows[0]["sweeps"])):
            for kind in ("all_reduce", "all_gather"):
                for same in zip(*(rank["sweeps"][turn][kind] for rank in self._rows), strict=True):
                    seconds = max(statistics.median(row["samples_s"] or [row["time_s"]])
                                  for row in same)  # fmt: skip
                    size = same[0]["size_bytes"]
                    found.append(MeasuredCollective(kind, self.ranks, size, seconds))
        return tuple(found)

    def calls_s(self, kind: str) -> dict[int, list[float]]:
        """Seconds of one collective alone: size in bytes to one number for each pass."""
        found: dict[int, list[float]] = {}
        for one in self.collectives:
            if one.kind == kind:
                found.setdefault(one.total_bytes, []).append(one.seconds)
        return dict(sorted(found.items()))

    @cached_property
    def curves(self) -> CollectiveCurves:
        """Seconds of each collective by its size."""
        return fit_collectives(self.collectives)

    def held_out(self) -> HeldOut:
        """How well the curves foretell sizes that they were not fitted on."""
        return held_out_collectives(self.collectives)

    def forecast(self, point: Point, phase: Phase) -> SplitStep:
        """The sharded step from its share and the collectives; no sharded step goes in."""
        rows, tokens = point
        exchanges = greedy_exchanges(
            self.spec, ranks=self.ranks, rows=rows, tokens=tokens if phase == "prefill" else 1
        )
        cost = exchange_s(
            exchanges, seconds=lambda k, s: self.curves.seconds(k, s, ranks=self.ranks)
        )
        share_s = self.seconds("share", point, phase)
        return SplitStep(share_s, cost, self.ranks, self.raw["cores"])
