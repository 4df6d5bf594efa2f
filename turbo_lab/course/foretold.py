"""A server calibrated in a lesson, and loads that are foretold before they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turbo_lab.client.load import run_open_loop
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.streams import timelines
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.calibration_run import calibrate
from turbo_lab.workload.request import Request

VLLM_BUDGET_TOKENS = 2048  # vLLM's own default for a server, where the lesson does not set it


def calibrated(lab: Lesson, server: Any, *, rounds: int, widest: int | None = None) -> Calibration:
    """Measure the server's step times under ``calibration``, or replay them.

    Raises UnmeasuredError where there is none: nothing in the lesson can be simulated then.
    """

    def measure() -> dict[str, Any]:
        return calibrate(
            server.base_url, name="this-server", rounds=rounds, widest=widest,
            max_sequences=server.args.max_num_seqs,
            max_batched_tokens=server.args.max_num_batched_tokens or VLLM_BUDGET_TOKENS,
        ).to_dict()  # fmt: skip

    found = lab.observe("calibration", measure)
    if found is None:
        raise UnmeasuredError("the server could not be calibrated; the reason is printed above")
    return Calibration.from_dict(found)


def sent_at(
    lab: Lesson, name: str, requests: Sequence[Request], schedule_s: Sequence[float], *, server: Any
) -> list[Timeline]:
    """Send requests at their times and observe them under ``name``; empty where unmeasured."""
    return timelines(
        lab,
        name,
        lambda: run_open_loop(requests, base_url=server.base_url, schedule_s=schedule_s),
    )
