"""Which layers mind: quantise one part of the model at a time and look at the damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.quantized import dequantize
from turbo_lab.precision.weights.calibration import LayerInputs
from turbo_lab.precision.weights.layers import (
    block_of,
    kind_of,
    linear_names,
    replaced,
    weight_of,
)
from turbo_lab.precision.weights.recipe import Recipe, quantize_layer

_PLAIN_BYTES = 2  # of a weight that stays in 16 bits


@dataclass(frozen=True)
class Sensitivity:
    """Damage of quantising one part of the model alone.

    ``damage``: what the score function returned minus its value for the untouched model (KL or
    a difference of log-likelihood, in nats per token). ``saved_bytes``: against 16 bits.
    """

    part: str
    layers: tuple[str, ...]
    damage: float
    saved_bytes: int

    @property
    def damage_per_mib(self) -> float:
        """Damage for each MiB that quantising this part saves."""
        return self.damage / (self.saved_bytes / 2**20)


def parts_by_block(model: Any) -> dict[str, tuple[str, ...]]:
    """All linear layers of each decoder block together: ``block 0``, ``block 1``, ..."""
    return _grouped(model, lambda name: f"block {block_of(name)}")


def parts_by_kind(model: Any) -> dict[str, tuple[str, ...]]:
    """All layers of one role over all blocks: ``q_proj``, ``down_proj``, ..."""
    return _grouped(model, kind_of)


def sensitivity(
    model: Any,
    recipe: Recipe,
    *,
    parts: Mapping[str, Sequence[str]],
    score: Callable[[Any], float],
    inputs: Mapping[str, LayerInputs] | None = None,
) -> Iterator[Sensitivity]:
    """Quantise each part alone, in place, score the model and put the weights back.

    Yields one row after the other, so that a long run can be shown and stopped. ``score`` gets the
    model and returns its loss, the smaller the better; it is asked for the untouched model first.
    """
    before = score(model)
    known = inputs or {}
    for part, names in parts.items():
        packed = {
            n: quantize_layer(weight_of(model, n), recipe, inputs=known.get(n)) for n in names
        }
        with replaced(model, {n: dequantize(q) for n, q in packed.items()}):
            damage = score(model) - before
        saved = sum(_PLAIN_BYTES * q.count - q.bytes for q in packed.values())
        yield Sensitivity(part, tuple(names), damage, saved)


def skip_list(rows: Sequence[Sensitivity], *, budget_bytes: int) -> tuple[str, ...]:
    """The layers to leave in 16 bits: greatest damage per byte first, within a budget of bytes.

    Greedy over whole parts; a part too large for what is left of the budget is passed over. The
    names go into ``Recipe.skip``. Damages of single parts add up only roughly, so measure the
    result. Raises UsageError for a negative budget.
    """
    if budget_bytes < 0:
        raise UsageError(f"budget_bytes is {budget_bytes}; allowed: whole numbers from 0")
    left, skipped = budget_bytes, []
    for row in sorted(rows, key=lambda r: r.damage_per_mib, reverse=True):
        if 0 < row.saved_bytes <= left and row.damage > 0:
            left -= row.saved_bytes
            skipped += row.layers
    return tuple(skipped)


def _grouped(model: Any, key: Callable[[str], str]) -> dict[str, tuple[str, ...]]:
    out: dict[str, tuple[str, ...]] = {}
    for name in linear_names(model):
        out[key(name)] = (*out.get(key(name), ()), name)
    return out
