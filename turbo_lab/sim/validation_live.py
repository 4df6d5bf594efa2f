"""Calibrate on a live server and validate on it within the same minutes, turn and turn about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from turbo_lab.client.load import run_closed_loop, run_open_loop
from turbo_lab.core.errors import UsageError
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.calibration_limits import engine_limits
from turbo_lab.sim.calibration_run import SeenSteps, describe, make_calibration, see_steps
from turbo_lab.sim.validation import Validation, judge, measure_loads


def validate_server(
    base_url: str,
    *,
    name: str,
    passes: int = 3,
    requests: int = 48,
    max_batched_tokens: int | None = None,
    max_sequences: int | None = None,
    report: Callable[[str], None] = print,
) -> tuple[Calibration, Validation]:
    """A round of calibration before each pass of the loads; all rounds make one calibration.

    A machine that other work slows down for half a minute then slows both. The validation is kept
    in the calibration's ``evidence["validation"]``. About 75 s a pass on two cores.

    Args:
        base_url: a server that serves nothing else, without a prefix cache.
        name: of the calibration.
        passes: rounds of calibration, and runs of each load.
        requests: in each load.
        max_batched_tokens: token budget of a step, where the server does not tell it.
        max_sequences: seats, where the server does not tell them.
        report: gets a line after each load.

    Raises:
        EngineError, UsageError, UnmeasuredError: as ``calibrate`` and ``measure_loads``.
    """
    if passes < 1:
        raise UsageError(f"passes is {passes}; it must be at least 1")
    limits = engine_limits(
        base_url, max_batched_tokens=max_batched_tokens, max_sequences=max_sequences
    )
    seen = SeenSteps((), ())

    def calibrate_again(number: int) -> None:
        nonlocal seen
        seen = seen + see_steps(
            limits,
            send=lambda r, users: run_closed_loop(r, base_url=base_url, concurrency=users),
            rounds=1,
            seed=number,
            warm_up=number == 0,
            on_load=lambda load, steps: report(f"pass {number}: {load.name}, {steps} steps"),
        )

    loads = measure_loads(
        lambda r, times: run_open_loop(r, base_url=base_url, schedule_s=times),
        model=limits.model,
        requests=requests,
        passes=passes,
        before_pass=calibrate_again,
        on_run=lambda share, figures: report(f"load {share:g}: {figures}"),
    )
    calibration = make_calibration(
        seen, limits=limits, name=name, source=describe(limits, base_url)
    )
    validation = judge(calibration, loads)
    evidence = {**calibration.evidence, "validation": validation.to_dict()}
    return replace(calibration, evidence=evidence), validation
