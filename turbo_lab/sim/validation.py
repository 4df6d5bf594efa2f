"""The simulator against the live server that it was calibrated on, under loads it has not seen.

A burst of all requests at once gives the makespan to be foretold, and the saturation: the rate at
which its middle half is finished. Then the same requests come at shares of that rate, Poisson in
time. Simulated and
measured runs go through the same metrics. Every load runs twice on the server: the difference of
the two is the machine's own noise, below which no error can be shown.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.estimate.points import PromptSource
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.simulate import simulate
from turbo_lab.workload import arrivals
from turbo_lab.workload.request import Request
from turbo_lab.workload.trace_request import TraceRequest

SHARES = (0.5, 0.8, 1.0, 1.2)
BURST = 0.0  # the share of a run in which all requests come at once
AIMS = {"ttft": 0.15, "tpot": 0.10, "throughput": 0.05, "makespan": 0.05}
STEADY, FULL = (0.5, 0.8), (1.0, 1.2, BURST)
PROMPTS, REPLIES = (48, 400), (8, 40)  # tokens; neither the calibration's lengths nor its mixture
SendAt = Callable[[Sequence[Request], Sequence[float]], Sequence[Timeline]]


@dataclass(frozen=True)
class Figures:
    """What is compared: P50 of TTFT and TPOT in s, output tokens per s, first send to end in s."""

    ttft: float
    tpot: float
    throughput: float
    makespan: float

    def errors(self, measured: Figures) -> dict[str, float]:
        """Relative error of each, signed: above 0 where this one is larger."""
        theirs = asdict(measured)
        return {name: value / theirs[name] - 1 for name, value in asdict(self).items()}


@dataclass(frozen=True)
class ValidationRun:
    """One load. ``share``: of the saturation, ``BURST`` for all at once."""

    share: float
    simulated: Figures
    measured: tuple[Figures, ...]

    def errors(self, name: str) -> list[float]:
        """Sizes of the relative errors of one figure, one for each time the load ran."""
        return [abs(self.simulated.errors(m)[name]) for m in self.measured]

    def noise(self, name: str) -> float | None:
        """Median relative difference of a run of this load and the next; None with one run."""
        if len(self.measured) < 2:
            return None
        return statistics.median(abs(a.errors(b)[name]) for a, b in pairwise(self.measured))


@dataclass(frozen=True)
class Validation:
    """All loads of one server and one calibration."""

    runs: tuple[ValidationRun, ...]
    saturation_req_s: float
    requests: int

    def error(self, name: str) -> float:
        """Median error of one figure over the loads for which it has an aim."""
        return statistics.median(e for run in self._judged(name) for e in run.errors(name))

    def noise(self, name: str) -> float | None:
        """Median A/A difference of the same figure over the same loads."""
        found = [n for run in self._judged(name) if (n := run.noise(name)) is not None]
        return statistics.median(found) if found else None

    def met(self, name: str, *, factor: float = 1.0) -> bool:
        """Whether the error is within ``factor`` times the aim."""
        return self.error(name) <= factor * AIMS[name]

    def verdict(self, name: str) -> str:
        """``met``; ``not met``; ``cannot tell`` where the error is no larger than the noise."""
        if self.met(name):
            return "met"
        noise = self.noise(name)
        if noise is not None and noise >= max(self.error(name), AIMS[name]):
            return "cannot tell: two equal runs differ as much"
        return "not met"

    def _judged(self, name: str) -> list[ValidationRun]:
        shares = STEADY if name in ("ttft", "tpot") else FULL if name == "throughput" else (BURST,)
        runs = [run for run in self.runs if run.share in shares]
        if not runs:
            raise UsageError(f"no run at {shares} of saturation: {name} cannot be judged")
        return runs

    def to_dict(self) -> dict[str, Any]:
        """JSON form, with aims, errors and noise."""
        return {
            "saturation_req_s": self.saturation_req_s,
            "requests": self.requests,
            "aims": {
                name: {"aim": aim, "error": self.error(name), "noise": self.noise(name),
                       "verdict": self.verdict(name)}
                for name, aim in AIMS.items()
            },
            "runs": [asdict(run) for run in self.runs],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"saturation {self.saturation_req_s:.2f} requests/s, {self.requests} a load"]
        for run in self.runs:
            name = "burst" if run.share == BURST else f"{run.share:g} x"
            for measured in run.measured:
                told = run.simulated.errors(measured)
                ours, theirs = asdict(run.simulated), asdict(measured)
                parts = [f"{k} {ours[k]:.3g} / {theirs[k]:.3g} ({told[k]:+.0%})" for k in told]
                lines.append(f"  {name:6} simulated / measured: " + ", ".join(parts))
        for name, aim in AIMS.items():
            noise = self.noise(name)
            lines.append(
                f"{name}: median error {self.error(name):.1%}, aim {aim:.0%}, A/A noise "
                + ("unmeasured" if noise is None else f"{noise:.1%}")
                + f": {self.verdict(name)}"
            )
        return "\n".join(lines)


def validation_requests(
    count: int, *, prompts: PromptSource, model: str, seed: int
) -> list[Request]:
    """Requests of independent prompt and reply lengths, both log-uniform."""
    rng = random.Random(f"validation-{seed}")

    def draw(low: int, high: int) -> int:
        return round(low * (high / low) ** rng.random())

    return [
        Request(
            prompt=prompts.fresh(tokens := draw(*PROMPTS)),
            model=model,
            max_tokens=(reply := draw(*REPLIES)),
            endpoint="completions",
            extra={"ignore_eos": True},
            labels={"input_tokens": tokens, "output_tokens": reply},
        )
        for _ in range(count)
    ]


@dataclass(frozen=True)
class MeasuredLoads:
    """What the server did: requests, and by share the times they came at and what was measured."""

    requests: tuple[Request, ...]
    schedules: Mapping[float, Sequence[float]]
    figures: Mapping[float, tuple[Figures, ...]]
    saturation_req_s: float


def measure_loads(
    send: SendAt,
    *,
    model: str,
    shares: Sequence[float] = SHARES,
    requests: int = 40,
    passes: int = 2,
    seed: int = 1,
    vocab: int = 32_000,
    before_pass: Callable[[int], None] | None = None,
    on_run: Callable[[float, Figures], None] | None = None,
) -> MeasuredLoads:
    """Run every load on the server, all loads once, then all again, so that drift shows as noise.

    The server must not cache prefixes: each pass has the same prompts.

    Args:
        send: sends requests at their times, for example ``run_open_loop``.
        model: name to ask for.
        shares: loads as shares of the saturation that the first burst shows.
        requests: in every load.
        passes: how often each load runs.
        seed: of lengths and arrivals.
        vocab: prompts are random ids below it.
        before_pass: called with the number of the pass, to calibrate within the same minutes.
        on_run: called after each run.

    Raises:
        UnmeasuredError: a request failed, or TTFT or TPOT cannot be known.
    """
    if requests < 2 or passes < 1:
        raise UsageError(f"{requests} requests, {passes} passes: at least 2 and 1 are needed")
    prompts = PromptSource(vocab=vocab, longest=PROMPTS[1], seed=seed)
    asked = validation_requests(requests, prompts=prompts, model=model, seed=seed)
    schedules: dict[float, Sequence[float]] = {BURST: [0.0] * requests}
    seen: dict[float, list[Figures]] = {}
    saturation = 0.0
    for number in range(passes):
        if before_pass is not None:
            before_pass(number)
        for share in (BURST, *shares):
            if share not in schedules:
                rate = share * saturation
                schedules[share] = arrivals.poisson(requests, rate_per_s=rate, seed=seed)
            timelines = send(asked, schedules[share])
            figures = measured_figures(timelines)
            saturation = saturation or finishing_rate(timelines)
            seen.setdefault(share, []).append(figures)
            if on_run is not None:
                on_run(share, figures)
    found = {share: tuple(figures) for share, figures in seen.items()}
    return MeasuredLoads(tuple(asked), schedules, found, saturation)


def finishing_rate(timelines: Sequence[Timeline]) -> float:
    """Requests per second while the middle half of them was finished: the filling and the draining
    of the engine are left out.
    """
    ends = sorted(t.closed_s for t in timelines if t.closed_s is not None)
    low, high = len(ends) // 4, 3 * len(ends) // 4
    if high <= low or ends[high] <= ends[low]:
        raise UnmeasuredError(f"{len(ends)} requests ended: too few, or all at once, for a rate")
    return (high - low) / (ends[high] - ends[low])


def judge(calibration: Calibration, loads: MeasuredLoads) -> Validation:
    """Run the same requests at the same times in the simulator, and compare."""
    runs = tuple(
        ValidationRun(
            share, simulated_figures(calibration, loads.requests, times), loads.figures[share]
        )
        for share, times in loads.schedules.items()
    )
    return Validation(runs, loads.saturation_req_s, len(loads.requests))


def measured_figures(timelines: Sequence[Timeline]) -> Figures:
    """The figures of one run. Raises UnmeasuredError where a request failed."""
    summary = summarize(timelines)
    if not summary.comparable:
        raise UnmeasuredError(f"requests failed: {dict(summary.failures)}")
    values: Mapping[str, float | None] = {
        "ttft": summary["ttft_s"].median,
        "tpot": summary["tpot_s"].median,
        "throughput": summary["output_rate_tok_s"].value,
        "makespan": summary["duration_s"].value,
    }
    if missing := [name for name, value in values.items() if not value]:
        raise UnmeasuredError(f"the server's replies do not tell {', '.join(missing)}")
    return Figures(**values)  # type: ignore[arg-type]


def simulated_figures(
    calibration: Calibration, requests: Sequence[Request], schedule_s: Sequence[float]
) -> Figures:
    """The figures of the same requests at the same times in the simulator."""
    trace = [
        TraceRequest(when, int(r.labels["input_tokens"]), int(r.labels["output_tokens"]))
        for r, when in zip(requests, schedule_s, strict=True)
    ]
    result = simulate(trace, Engine(calibration, prefix_cache=False), keep_timelines=True)
    return measured_figures(result.timelines())
