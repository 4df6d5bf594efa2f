"""Calibrating on a live server: send loads, see the steps, fit their costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.points import PromptSource, Send
from turbo_lab.records.environment import capture_environment, describe_machine, utc_now
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.calibration_fit import StepCosts, fit_result, fit_steps
from turbo_lab.sim.calibration_limits import EngineLimits, engine_limits
from turbo_lab.sim.calibration_loads import CalibrationLoad, calibration_loads
from turbo_lab.sim.calibration_steps import APART, StepSample, step_samples, usual_gap_s

VOCABULARY = 32_000  # ids below it exist in every common model
MEANING = (
    "median and p90: relative error of a step; calm_median: of steps below 1.5 times the fit; "
    "total: all fitted time over all measured time, less 1, so its change from round to round is "
    "the drift of the machine; disturbed: share of time in steps that were not calm"
)
OnLoad = Callable[[CalibrationLoad, int], None]


@dataclass(frozen=True)
class SeenSteps:
    """The steps of all loads, round by round: those to fit on and those to judge by."""

    fit: tuple[tuple[StepSample, ...], ...]
    judge: tuple[StepSample, ...]

    def __add__(self, other: SeenSteps) -> SeenSteps:
        """Both, round after round."""
        return SeenSteps(self.fit + other.fit, self.judge + other.judge)

    @property
    def all_fit(self) -> list[StepSample]:
        """Those to fit on, of all rounds."""
        return [sample for samples in self.fit for sample in samples]


def calibrate(
    base_url: str,
    *,
    name: str,
    source: str | None = None,
    rounds: int = 2,
    widest: int | None = None,
    max_batched_tokens: int | None = None,
    max_sequences: int | None = None,
    vocab: int = VOCABULARY,
    seed: int = 0,
    on_load: OnLoad | None = None,
) -> Calibration:
    """Measure a live server; about half a minute a round on a laptop's CPU.

    The server must serve nothing else meanwhile. Costs are fitted on crowds of every size; one
    crowd size is held out to judge them (``evidence["held_out"]``).

    Args:
        base_url: the server.
        name: what the calibration will be called.
        source: engine, model and machine; default: as far as the server and this machine tell.
        rounds: how often all loads are sent, in whole rounds, so that slow drift hits all of them.
        widest: most users at once; default: all seats, at most 128.
        max_batched_tokens: token budget of a step, where the server does not tell it.
        max_sequences: seats, where the server does not tell them.
        vocab: prompts are random ids below it.
        seed: of lengths and ids.
        on_load: called with each load and the number of steps seen in it.

    Raises:
        EngineError, UsageError: the server is not there, or a limit is unknown.
        UnmeasuredError: a request failed, or the server counts no tokens.
    """
    limits = engine_limits(
        base_url, max_batched_tokens=max_batched_tokens, max_sequences=max_sequences
    )
    seen = see_steps(
        limits,
        send=lambda requests, users: run_closed_loop(
            requests, base_url=base_url, concurrency=users
        ),
        rounds=rounds,
        widest=widest,
        vocab=vocab,
        seed=seed,
        on_load=on_load,
    )
    return make_calibration(
        seen, limits=limits, name=name, source=source or describe(limits, base_url)
    )


def see_steps(
    limits: EngineLimits,
    *,
    send: Send,
    rounds: int = 2,
    widest: int | None = None,
    vocab: int = VOCABULARY,
    seed: int = 0,
    warm_up: bool = True,
    on_load: OnLoad | None = None,
) -> SeenSteps:
    """Send all loads ``rounds`` times and read their steps. ``send``: requests, users."""
    if rounds < 1:
        raise UsageError(f"rounds is {rounds}; it must be at least 1")
    prompts = PromptSource(vocab=vocab, longest=limits.longest_tokens, seed=seed)
    fit: list[list[StepSample]] = [[] for _ in range(rounds)]
    judge: list[StepSample] = []
    apart_s: float | None = None
    for turn in range(rounds):
        loads = list(calibration_loads(limits, prompts=prompts, seed=seed + turn, widest=widest))
        if turn == 0 and warm_up:
            _warm_up(loads, send)
        for load in loads:
            timelines = send(load.requests, load.concurrency)
            apart_s = apart_s or APART * usual_gap_s(timelines)
            samples = step_samples(timelines, apart_s=apart_s)
            (judge if load.judge else fit[turn]).extend(samples)
            if on_load is not None:
                on_load(load, len(samples))
    return SeenSteps(tuple(tuple(f) for f in fit), tuple(judge))


def _warm_up(loads: Sequence[CalibrationLoad], send: Send) -> None:
    """The first requests of the narrowest and the widest load: memory and kernels are used once."""
    for load in (loads[0], max(loads, key=lambda load: load.concurrency)):
        send(load.requests[: load.concurrency], load.concurrency)


def make_calibration(
    seen: SeenSteps, *, limits: EngineLimits, name: str, source: str
) -> Calibration:
    """Fit the costs of the seen steps; limits as the engine told them."""
    costs = fit_steps(seen.all_fit)
    return Calibration(
        name=name,
        source=source,
        fixed_s=costs.fixed_s,
        prefill_token_s=costs.prefill_token_s,
        prefill_context_s=costs.prefill_context_s,
        decode_sequence_s=costs.decode_knots[1][1] / costs.decode_knots[1][0],
        context_token_s=costs.context_token_s,
        request_s=costs.request_s,
        blocks=limits.blocks,
        block_tokens=limits.block_tokens,
        max_batched_tokens=limits.max_batched_tokens,
        max_sequences=limits.max_sequences,
        decode_knots=costs.decode_knots,
        evidence=_evidence(seen, costs, limits),
    )


def _evidence(seen: SeenSteps, costs: StepCosts, limits: EngineLimits) -> dict[str, Any]:
    def result(samples: Iterable[StepSample]) -> dict[str, Any] | None:
        chosen = list(samples)
        return fit_result(costs, chosen).to_dict() if chosen else None

    return {
        "measured": utc_now(),
        "limits": asdict(limits),
        "scale": costs.scale,
        "disturbed": costs.disturbed,
        "fitted": result(seen.all_fit),
        "held_out": result(seen.judge),
        "decode_only": result(s for s in seen.all_fit if not s.prefill_tokens),
        "prompts_alone": result(s for s in seen.all_fit if s.alone),
        "mixed": result(s for s in seen.all_fit if s.prefill_tokens and s.decode_sequences),
        "rounds": [result(samples) for samples in seen.fit],
        "meaning": MEANING,
    }


def describe(limits: EngineLimits, base_url: str) -> str:
    """Engine, model and machine in words, as far as they are known."""
    engine = f"vLLM {limits.version}" if limits.version else "an OpenAI-compatible server"
    here = urlsplit(base_url).hostname in ("127.0.0.1", "localhost", "::1")
    machine = describe_machine(capture_environment()) if here else "a machine not told"
    return f"{engine}, {limits.weights or limits.model}, on {machine}"
