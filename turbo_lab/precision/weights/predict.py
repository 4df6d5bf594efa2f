"""Bytes of a recipe from config.json alone: what a file will hold before anything is quantised."""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.models.layers import Layer
from turbo_lab.models.matrices import Matrix, layer_matrices
from turbo_lab.models.parameters import count_parameters
from turbo_lab.models.spec import ModelSpec
from turbo_lab.numerics.formats import number_format
from turbo_lab.numerics.schemes import stored_bytes
from turbo_lab.precision.weights.recipe import Recipe

_SHAPE_BYTES = 16  # pack-quantized files keep each matrix's two sides as 64-bit numbers


@dataclass(frozen=True)
class RecipeBytes:
    """``plain``: weights that stay in the recipe's 16 bits; ``packed``: codes, scales and zeros.

    ``matrices``: how many are packed; ``packed_values``: the weights in them.
    """

    plain: int
    packed: int
    matrices: int
    packed_values: int

    @property
    def total(self) -> int:
        """All weights; a decode step of a model with tied embeddings reads each of them once."""
        return self.plain + self.packed

    @property
    def bits_per_weight(self) -> float:
        """Stored bits per packed weight, scales and zero points included."""
        return 8 * self.packed / max(self.packed_values, 1)


def recipe_bytes(spec: ModelSpec, recipe: Recipe) -> RecipeBytes:
    """Bytes of a model's weights under a recipe.

    ``sum of stored_bytes(matrix)`` over the matrices that the recipe takes, and the plain width
    for every other parameter, tied ones once.
    """
    packed = values = matrices = 0
    for index, layer in enumerate(spec.layers):
        for matrix in _taken(spec, layer, index, recipe):
            shape = (matrix.outputs, matrix.inputs)
            packed += matrix.copies * stored_bytes(shape, scheme=recipe.scheme).total
            values += matrix.elements
            matrices += matrix.copies
    width = number_format(recipe.plain_dtype).bits // 8
    plain = (count_parameters(spec).total - values) * width
    return RecipeBytes(plain, packed, matrices, values)


def checkpoint_bytes(spec: ModelSpec, recipe: Recipe) -> int:
    """Tensor bytes of the exported file: the weights, and for packed codes each matrix's shape."""
    found = recipe_bytes(spec, recipe)
    whole = number_format(recipe.scheme.format).bits >= 8
    return found.total + (0 if whole else _SHAPE_BYTES * found.matrices)


def plain_bytes(spec: ModelSpec, *, dtype: str) -> int:
    """Bytes of all weights in one plain format (``fp32``, ``bf16``, ``fp16``)."""
    return count_parameters(spec).total * number_format(dtype).bits // 8


def _taken(spec: ModelSpec, layer: Layer, index: int, recipe: Recipe) -> list[Matrix]:
    return [
        m for m in layer_matrices(spec, layer) if recipe.takes(f"model.layers.{index}.{m.name}")
    ]
