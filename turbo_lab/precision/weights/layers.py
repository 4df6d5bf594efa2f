"""The linear layers of a model's decoder blocks: names, weights, and swapping them for a while."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError

_IN_BLOCK = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")


def linear_names(model: Any) -> tuple[str, ...]:
    """Names of all linear layers inside decoder blocks, in the model's order.

    Embeddings and the output head are not among them: they are looked up or tied, and nearly every
    published 4-bit checkpoint leaves them in 16 bits.
    """
    import torch

    found = tuple(
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and _IN_BLOCK.search(name)
    )
    if not found:
        raise UsageError(f"{type(model).__name__} has no linear layers inside decoder blocks")
    return found


def block_of(name: str) -> int:
    """Index of the decoder block that a layer belongs to. Raises UsageError outside of one."""
    match = _IN_BLOCK.search(name)
    if not match:
        raise UsageError(f"{name!r} is not inside a decoder block (…layers.<number>.…)")
    return int(match.group(1))


def kind_of(name: str) -> str:
    """The layer's role, the last part of its name: ``q_proj``, ``down_proj``."""
    return name.rpartition(".")[2]


def weight_of(model: Any, name: str) -> np.ndarray:
    """A layer's weight [outputs, inputs], float32, a copy."""
    return model.get_submodule(name).weight.detach().cpu().float().numpy().copy()


def set_weight(model: Any, name: str, values: np.ndarray) -> None:
    """Write values into a layer's weight, in the weight's own dtype."""
    import torch

    weight = model.get_submodule(name).weight
    if tuple(weight.shape) != values.shape:
        raise UsageError(f"{name} has shape {tuple(weight.shape)}, the values {values.shape}")
    with torch.no_grad():
        weight.copy_(torch.from_numpy(np.ascontiguousarray(values)))


@contextmanager
def replaced(model: Any, values: Mapping[str, np.ndarray]) -> Iterator[Any]:
    """The model with other weights in some layers; afterwards the old ones, bit for bit."""
    kept = {name: model.get_submodule(name).weight.detach().clone() for name in values}
    try:
        for name, array in values.items():
            set_weight(model, name, array)
        yield model
    finally:
        import torch

        with torch.no_grad():
            for name, weight in kept.items():
                model.get_submodule(name).weight.copy_(weight)
