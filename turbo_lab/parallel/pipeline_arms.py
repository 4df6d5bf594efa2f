"""What a pipeline study runs and what it found: arms, and their tasks read by arm. Numbers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.parallel.schedule import (
    Slot,
    bubble_share,
    decode_order,
    slots_from,
    timetable,
)

Split = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Arm:
    """One way to run the pipeline.

    ``each``: requests of a micro-batch, of ``prompt_tokens`` tokens; ``steps``: new tokens (1 is
    the prefill alone). ``split``: (first, end) layer of each stage, by default even.
    ``schedule``: GPipe or 1F1B for a training step, empty for generating. ``alone``: the whole
    model on rank 0 while the other ranks wait.
    """

    name: str
    micro_batches: int
    each: int
    prompt_tokens: int
    steps: int = 1
    split: Split | None = None
    schedule: str = ""
    alone: bool = False

    @property
    def rows(self) -> int:
        """Requests in all."""
        return self.micro_batches * self.each


@dataclass(frozen=True)
class Studied:
    """What a study returned, as plain data (``data``), read by arm.

    Where ``data`` is None, for the study did not run, every figure raises UnmeasuredError.
    """

    stages: int
    data: Mapping[str, Any] | None

    def passes(self, arm: str, *, decode: bool = False) -> list[list[Slot]]:
        """The tasks of all stages, pass by pass; ``decode``: without the prefill."""
        runs = [slots_from(run["slots"]) for run in self._arm(arm)]
        return [decode_part(run) if decode else run for run in runs]

    def idle(self, arm: str, *, decode: bool = False) -> list[float]:
        """Idle share of all stages together in each pass."""
        runs = self.passes(arm, decode=decode)
        return [bubble_share(run, stages=self.stages) for run in runs]

    def seconds(self, arm: str, *, decode: bool = False) -> list[float]:
        """From the first task's start to the last one's end, in each pass."""
        runs = self.passes(arm, decode=decode)
        return [max(s.end_s for s in run) - min(s.start_s for s in run) for run in runs]

    def stage_s(self, arm: str, *, decode: bool = False, kind: str = "forward") -> list[float]:
        """For each stage the median seconds of a task, all passes together.

        ``decode``: of the steps after the prefill; otherwise of the prefill alone.
        """
        slots = [slot for run in self.passes(arm) for slot in run]
        return [
            median(
                s.end_s - s.start_s
                for s in slots
                if s.task.stage == stage and s.task.kind == kind and (s.task.step > 0) == decode
            )
            for stage in sorted({s.task.stage for s in slots})
        ]

    def kept_bytes(self, arm: str) -> list[int]:
        """For each stage the most bytes of activations kept for the backward pass."""
        return list(self._arm(arm)[0]["kept_bytes"])

    def tokens(self, arm: str) -> list[list[int]]:
        """The tokens written in the first pass, a list for each request."""
        return list(self._whole["tokens"][arm])

    def sent_bytes(self, arm: str) -> int:
        """Payload of the activations sent in the first pass, over all boundaries."""
        return int(self._whole["sent_bytes"][arm])

    @property
    def weight_bytes(self) -> list[int]:
        """Bytes of the matrices that each stage of the even split holds."""
        return list(self._whole["weight_bytes"])

    def _arm(self, arm: str) -> list[dict[str, Any]]:
        runs = self._whole["runs"]
        if arm not in runs:
            raise UsageError(f"there is no arm {arm!r}; allowed: {', '.join(runs)}")
        return list(runs[arm])

    @property
    def _whole(self) -> Mapping[str, Any]:
        if self.data is None:
            raise UnmeasuredError("the study did not run")
        return self.data


def decode_part(slots: Sequence[Slot]) -> list[Slot]:
    """Without the prefill, which takes another time than the steps behind it."""
    return [slot for slot in slots if slot.task.step]


def forecast(arm: Arm, *, prefill_s: Sequence[float], decode_s: Sequence[float] = ()) -> list[Slot]:
    """The timetable of an arm that generates, from the seconds of one micro-batch on each stage.

    Sending takes no time. Raises UsageError for a training arm, or without the times of decoding.
    """
    if arm.schedule or (arm.steps > 1 and len(decode_s) != len(prefill_s)):
        raise UsageError(
            f"arm {arm.name!r}, {len(prefill_s)} prefill and {len(decode_s)} decode times; "
            "allowed: an arm without a schedule, and with several steps as many of both"
        )
    order = decode_order(stages=len(prefill_s), micro_batches=arm.micro_batches, steps=arm.steps)
    return timetable(
        order, duration=lambda task: (decode_s if task.step else prefill_s)[task.stage]
    )
