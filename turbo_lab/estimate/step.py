"""How long a step takes at least: general rules of thumb, and the counted work behind them.

``step_work``, ``decode_work`` and ``prefill_work`` count a real model's step (see
``turbo_lab.estimate.work``); the functions here need only a parameter count.
"""

from __future__ import annotations

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.work import StepWork, decode_work, prefill_work, step_work
from turbo_lab.hardware.roofline import Roof

__all__ = [
    "StepWork", "batch_crossover", "decode_work", "general_step_s", "generation_rate_per_chip",
    "prefill_s", "prefill_work", "step_work",
]  # fmt: skip


def general_step_s(
    *,
    parameters: float,
    parameter_bytes: float,
    kv_bytes_per_sequence: float,
    batch: float,
    roof: Roof,
    chips: int = 1,
    flops_per_parameter: float = 2,
) -> float:
    """The book's general step time: attention always memory-bound, the rest the larger of two.

    ``B * KV / bandwidth + max(2 * B * P / peak, P * bytes / bandwidth)``, all over ``chips``.
    Source: Austin et al., How to Scale Your Model (scaling-book), chapter on inference.
    """
    for name, value in (("parameters", parameters), ("batch", batch), ("chips", chips)):
        if value <= 0:
            raise UsageError(f"{name} is {value}; it must be above 0")
    attention_s = batch * kv_bytes_per_sequence / roof.bandwidth_bytes_s
    compute_s = flops_per_parameter * batch * parameters / roof.peak_flops
    memory_s = parameters * parameter_bytes / roof.bandwidth_bytes_s
    return (attention_s + max(compute_s, memory_s)) / chips


def prefill_s(
    *, parameters: float, tokens: float, peak_flops: float, utilisation: float, chips: int = 1
) -> float:
    """Compute-bound prefill: ``2 * P * T / (chips * peak * utilisation)``. Source: scaling-book."""
    if not 0 < utilisation <= 1:
        raise UsageError(f"utilisation is {utilisation}; allowed: above 0 up to 1")
    return 2 * parameters * tokens / (chips * peak_flops * utilisation)


def batch_crossover(roof: Roof, *, bytes_per_parameter: float = 2) -> float:
    """Tokens per step from which weight products are bound by compute: ``bytes * peak / (2 W)``.

    240 for bf16 on TPU v5e, 120 with 8-bit weights computed in bf16. Source: scaling-book.
    """
    if bytes_per_parameter <= 0:
        raise UsageError(f"bytes_per_parameter is {bytes_per_parameter}; it must be above 0")
    return bytes_per_parameter * roof.ridge / 2


def generation_rate_per_chip(*, batch: float, step_s: float, steps: float, chips: int) -> float:
    """Finished requests per second and chip: ``B / (step * steps * chips)`` (scaling-book)."""
    return batch / (step_s * steps * chips)
