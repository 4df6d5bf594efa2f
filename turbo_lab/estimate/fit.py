"""A step-time model of one engine on one machine: a bound that is counted, and what is fitted.

Decode:   ``t = step_s + B * sequence_s + K / (bandwidth * cache_efficiency)``
Prefill:  ``t = request_s + F_linear / (peak * linear_efficiency) + F_attn / (peak * attn_eff)``

K: bytes of cached keys and values the step reads. F: operations. ``peak`` and ``bandwidth`` are the
measured ceilings, never fitted. ``step_s`` holds the reading of the weights and the host's work for
a step; ``host_s`` is what the bound leaves unexplained of it. Fitted on few points by non-negative
least squares on relative errors, made robust by reweighting.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.core.fitting import robust_nonnegative_fit
from turbo_lab.estimate.points import MeasuredStep, StepPoint
from turbo_lab.estimate.work import StepWork, step_work
from turbo_lab.hardware.roofline import Roof
from turbo_lab.models.spec import ModelSpec


@dataclass(frozen=True)
class StepModel:
    """The fitted model. Inverse efficiencies are 0 where the fit found no such cost."""

    spec: ModelSpec
    roof: Roof
    weight_bytes: float
    kv_dtype: str
    step_s: float
    sequence_s: float
    inverse_cache_efficiency: float
    request_s: float
    inverse_linear_efficiency: float
    inverse_attention_efficiency: float

    def work(self, sequences: Iterable[tuple[int, int]]) -> StepWork:
        """Counted work of a step of (new, past) sequences under this model's formats."""
        return step_work(
            self.spec, sequences, weight_bytes=self.weight_bytes, kv_dtype=self.kv_dtype
        )

    def bound_s(self, sequences: Iterable[tuple[int, int]]) -> float:
        """Lower bound from the ceilings alone (nothing fitted)."""
        return self.work(sequences).lower_bound_s(self.roof)

    def decode_s(self, *, batch: int, context_tokens: int) -> float:
        """Seconds of one decode step, never below the bound."""
        rows = [(1, context_tokens - 1)] * batch
        columns = _decode_columns(self.work(rows), self.roof)
        fitted = (self.step_s, self.sequence_s, self.inverse_cache_efficiency)
        return max(self.bound_s(rows), float(np.dot(columns, fitted)))

    def prefill_s(self, *, tokens: int, past: int = 0) -> float:
        """Seconds from request to first token of one prompt alone, never below the bound."""
        rows = [(tokens, past)]
        return max(
            self.bound_s(rows), self.request_s + self.prefill_work_s(tokens=tokens, past=past)
        )

    def prefill_work_s(self, *, tokens: int, past: int = 0) -> float:
        """The part of a prefill that grows with the prompt: what it adds to a running step."""
        columns = _prefill_columns(self.work([(tokens, past)]), self.roof)
        fitted = (0.0, self.inverse_linear_efficiency, self.inverse_attention_efficiency)
        return float(np.dot(columns, fitted))

    def mixed_step_s(
        self, *, decode_contexts: Sequence[int], prefill: Sequence[tuple[int, int]] = ()
    ) -> float:
        """One step of a continuous batch: decoding sequences and chunks of prompts together."""
        rows = [(1, context - 1) for context in decode_contexts]
        total = sum(self.prefill_work_s(tokens=new, past=past) for new, past in prefill)
        if rows:
            columns = _decode_columns(self.work(rows), self.roof)
            fitted = (self.step_s, self.sequence_s, self.inverse_cache_efficiency)
            total += float(np.dot(columns, fitted))
        else:
            total += self.step_s
        return max(total, self.bound_s([*rows, *prefill])) if rows or prefill else 0.0

    def predict(self, point: StepPoint) -> float:
        """Seconds of one point."""
        if point.phase == "prefill":
            return self.prefill_s(tokens=point.tokens)
        return self.decode_s(batch=point.batch, context_tokens=point.tokens)

    @property
    def host_s(self) -> float:
        """Seconds per step that reading the weights at the ceiling does not explain.

        Scheduling, launching, sampling, sending, and weights that come slower than the ceiling.
        """
        weights_s = self.work([(1, 0)]).weight_bytes / self.roof.bandwidth_bytes_s
        return self.step_s - weights_s

    @property
    def cache_efficiency(self) -> float | None:
        """Bandwidth reached on the KV cache over the ceiling; None where no cost was found."""
        return 1 / self.inverse_cache_efficiency if self.inverse_cache_efficiency else None

    @property
    def linear_efficiency(self) -> float | None:
        """Rate reached on the weight products of a prefill over the ceiling."""
        return 1 / self.inverse_linear_efficiency if self.inverse_linear_efficiency else None


@dataclass(frozen=True)
class FitError:
    """How a model does on points it has not seen.

    ``noise``: median relative difference between two measurements of the same point (A/A).
    """

    points: int
    median: float
    worst: float
    noise: float | None

    def within(self, limit: float) -> bool:
        """True when the median error is at most ``limit``, or the machine's own noise if larger."""
        return self.median <= max(limit, self.noise or 0.0)


def fit_step_model(
    measured: Sequence[MeasuredStep],
    *,
    spec: ModelSpec,
    roof: Roof,
    weight_bytes: float,
    kv_dtype: str = "auto",
) -> StepModel:
    """Fit on measured points; at least three of each phase.

    Raises UsageError for too few points.
    """
    groups = {phase: [m for m in measured if m.point.phase == phase]
              for phase in ("decode", "prefill")}  # fmt: skip
    for phase, group in groups.items():
        if len(group) < 3:
            raise UsageError(f"{len(group)} {phase} points; a fit needs at least three")

    def solve(phase: str, columns) -> tuple[float, ...]:
        rows = [
            columns(
                step_work(spec, m.point.sequences, weight_bytes=weight_bytes, kv_dtype=kv_dtype),
                roof,
            )
            for m in groups[phase]
        ]
        return robust_nonnegative_fit(np.array(rows), np.array([m.seconds for m in groups[phase]]))

    return StepModel(
        spec, roof, weight_bytes, kv_dtype,
        *solve("decode", _decode_columns),
        *solve("prefill", _prefill_columns),
    )  # fmt: skip


def loose_roof(
    measured: Sequence[MeasuredStep],
    *,
    spec: ModelSpec,
    weight_bytes: float,
    kv_dtype: str = "auto",
    headroom: float = 4.0,
) -> Roof:
    """``headroom`` times the highest rates that any point reached, where no ceilings were probed.

    It keeps the bound out of the way: a larger step may reach more than all measured ones. The
    efficiencies of a fit against it say nothing of the machine.
    """
    work = [
        (
            step_work(spec, m.point.sequences, weight_bytes=weight_bytes, kv_dtype=kv_dtype),
            m.seconds,
        )
        for m in measured
    ]
    if not work:
        raise UsageError("there are no points to take rates from")
    peak_flops = headroom * max(w.flops / seconds for w, seconds in work)
    bandwidth = headroom * max(w.bytes_moved / seconds for w, seconds in work)
    return Roof(peak_flops, bandwidth, f"{headroom:g} x the rates reached")


def fit_error(model: StepModel, measured: Sequence[MeasuredStep]) -> FitError:
    """Relative errors of ``model`` on ``measured``, and the noise of the measurement itself."""
    if not measured:
        raise UsageError("there are no points to compare with")
    errors = [abs(model.predict(m.point) - m.seconds) / m.seconds for m in measured]
    return FitError(len(errors), statistics.median(errors), max(errors), aa_noise(measured))


def aa_noise(measured: Sequence[MeasuredStep]) -> float | None:
    """Median relative difference between the two halves of the passes; None with one pass."""
    pairs = [m.halves for m in measured if m.halves is not None]
    if not pairs:
        return None
    return statistics.median(abs(a - b) / min(a, b) for a, b in pairs)


def _decode_columns(work: StepWork, roof: Roof) -> tuple[float, float, float]:
    return 1.0, float(work.sequences), work.part("attention").cache_bytes / roof.bandwidth_bytes_s


def _prefill_columns(work: StepWork, roof: Roof) -> tuple[float, float, float]:
    attention = work.part("attention").flops
    return 1.0, (work.flops - attention) / roof.peak_flops, attention / roof.peak_flops
