"""A recipe says how a model's linear layers are stored; applying it gives a copy and its bytes."""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.formats import number_format
from turbo_lab.numerics.quantized import Quantized, dequantize, quantize
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.calibration import LayerInputs
from turbo_lab.precision.weights.gptq import gptq
from turbo_lab.precision.weights.layers import linear_names, set_weight, weight_of
from turbo_lab.precision.weights.smooth import (
    DEFAULT_ALPHAS,
    LLAMA_FOLDS,
    Smoothing,
    smooth_model,
)


@dataclass(frozen=True)
class Recipe:
    """How the linear layers of the decoder blocks are stored.

    ``method``: "rtn" rounds to nearest; "gptq" needs calibration inputs. ``smooth``: AWQ's folded
    scales first, with either method. ``skip``: patterns of layer names that stay in
    ``plain_dtype`` (``*.down_proj``, ``model.layers.0.*``). ``plain_dtype``: what everything else
    is stored in: embeddings, norms, skipped layers.
    """

    name: str
    scheme: Scheme
    method: Literal["rtn", "gptq"] = "rtn"
    smooth: bool = False
    skip: tuple[str, ...] = ()
    plain_dtype: Literal["fp32", "bf16", "fp16"] = "bf16"
    alphas: tuple[float, ...] = DEFAULT_ALPHAS

    @property
    def needs_calibration(self) -> bool:
        """True when calibration inputs must be given."""
        return self.method == "gptq" or self.smooth

    def takes(self, name: str) -> bool:
        """True when a layer of that name is quantised."""
        return not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.skip)


@dataclass(frozen=True, eq=False)
class QuantizedModel:
    """A model with quantised-then-dequantised weights, and what would be stored.

    ``model`` computes with the values that the codes stand for; it is no smaller itself.
    ``stored``: the packed layers. ``plain_values``: all other parameters, tied ones once.
    """

    recipe: Recipe
    model: Any
    stored: Mapping[str, Quantized] = field(repr=False)
    plain_values: int

    @property
    def plain_bytes(self) -> int:
        """Bytes of everything that is not quantised."""
        return self.plain_values * number_format(self.recipe.plain_dtype).bits // 8

    @property
    def packed_bytes(self) -> int:
        """Bytes of the quantised layers, scales and zero points included."""
        return sum(q.bytes for q in self.stored.values())

    @property
    def bytes(self) -> int:
        """Bytes of all weights."""
        return self.plain_bytes + self.packed_bytes

    @property
    def bits_per_weight(self) -> float:
        """Stored bits per weight in the quantised layers alone."""
        return 8 * self.packed_bytes / max(sum(q.count for q in self.stored.values()), 1)


def quantize_layer(weight: Any, recipe: Recipe, *, inputs: LayerInputs | None = None) -> Quantized:
    """One weight matrix under the recipe's method (smoothing is a matter of the whole model)."""
    if recipe.method == "rtn":
        return quantize(weight, recipe.scheme)
    if inputs is None:
        raise UsageError("method 'gptq' needs calibration inputs; see collect_inputs")
    return gptq(weight, recipe.scheme, hessian=inputs.hessian)


def quantized_copy(
    model: Any, recipe: Recipe, *, inputs: Mapping[str, LayerInputs] | None = None
) -> QuantizedModel:
    """A copy of the model under the recipe; the model itself is left alone.

    ``inputs``: from :func:`.calibration.collect_inputs`, for "gptq" and ``smooth``.
    Raises UsageError when they are needed and missing, or when the skip list matches everything.
    """
    names = [name for name in linear_names(model) if recipe.takes(name)]
    if not names:
        raise UsageError(f"skip {recipe.skip} leaves no layer to quantise")
    if recipe.needs_calibration and inputs is None:
        raise UsageError(f"recipe {recipe.name!r} needs calibration inputs; see collect_inputs")
    changed = copy.deepcopy(model)
    known = dict(inputs or {})
    if recipe.smooth:
        found = smooth_model(changed, recipe.scheme, inputs=known, alphas=recipe.alphas)
        known = _divided(known, found)
    stored: dict[str, Quantized] = {}
    for name in names:
        stored[name] = quantize_layer(weight_of(changed, name), recipe, inputs=known.get(name))
        set_weight(changed, name, dequantize(stored[name]))
    _round_plain(changed, recipe, names)
    values = sum(p.numel() for p in changed.parameters()) - sum(q.count for q in stored.values())
    return QuantizedModel(recipe, changed, stored, values)


def _divided(
    inputs: Mapping[str, LayerInputs], smoothings: Mapping[str, Smoothing]
) -> dict[str, LayerInputs]:
    """Inputs of the smoothed model: readers of a fold see them divided by its scales."""
    out = dict(inputs)
    for producer, smoothing in smoothings.items():
        for fold in LLAMA_FOLDS:
            if producer.endswith("." + fold.producer):
                block = producer.removesuffix(fold.producer)
                for reader in fold.readers:
                    if block + reader in out:
                        out[block + reader] = out[block + reader].divided_by(smoothing.scales)
    return out


def _round_plain(model: Any, recipe: Recipe, quantised: Sequence[str]) -> None:
    """Parameters that are not quantised are rounded to the dtype they are stored in."""
    import torch

    if recipe.plain_dtype == "fp32":
        return
    narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}[recipe.plain_dtype]
    packed = {f"{name}.weight" for name in quantised}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in packed:
                parameter.copy_(parameter.to(narrow))
