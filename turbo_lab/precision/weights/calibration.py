"""What reaches each linear layer on calibration text: the mean of ``x x^T`` and of ``|x|``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.precision.weights.layers import kind_of, linear_names

# Layers that read the same input as another one; its statistics are shared, not gathered twice.
SAME_INPUT = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """Inputs of one layer over the calibration tokens.

    ``hessian``: [inputs, inputs], mean of ``x x^T``, float32 (the second derivative of the squared
    output error, up to a factor of two). ``mean_abs``: [inputs], mean of ``|x|``.
    """

    hessian: np.ndarray
    mean_abs: np.ndarray
    tokens: int

    def divided_by(self, scales: np.ndarray) -> LayerInputs:
        """The same inputs after division by one number per input."""
        return LayerInputs(
            self.hessian / np.outer(scales, scales), self.mean_abs / scales, self.tokens
        )


def calibration_folder() -> Path:
    """Where the repository keeps its calibration texts (``calibration_*.txt``)."""
    from turbo_lab.core.host import repository_root

    return repository_root() / "data" / "prompts"


def token_windows(ids: Any, *, window_tokens: int) -> list[Any]:
    """Token ids [tokens] cut into windows, one after the other; a last single token is left out.

    Raises UsageError for a window below two tokens or a text with fewer than two.
    """
    if window_tokens < 2:
        raise UsageError(f"window_tokens is {window_tokens}; it must be at least 2")
    if len(ids) < 2:
        raise UsageError(f"the calibration text holds {len(ids)} tokens; it needs at least 2")
    return [part for part in ids.split(window_tokens) if len(part) > 1]


def collect_inputs(
    model: Any, windows: Sequence[Any], *, names: Sequence[str] | None = None
) -> dict[str, LayerInputs]:
    """Run the windows through the model and gather what each linear layer reads.

    One pass of the unquantised model (GPTQ's original re-runs each block behind quantised ones).
    ``names``: layers to gather (default: all linear layers of the decoder blocks). Memory:
    ``inputs^2 * 4`` bytes per layer with an input of its own.
    """
    import torch

    wanted = tuple(names or linear_names(model))
    sums: dict[str, list[Any]] = {}
    handles = []
    for name in dict.fromkeys(_source(n) for n in wanted):
        handles.append(model.get_submodule(name).register_forward_pre_hook(_adder(sums, name)))
    try:
        with torch.inference_mode():
            for ids in windows:
                model(ids[None].to(model.device), logits_to_keep=1)
    finally:
        for handle in handles:
            handle.remove()
    gathered = {
        name: LayerInputs((h / n).cpu().numpy(), (a / n).cpu().numpy(), n)
        for name, (h, a, n) in sums.items()
    }
    return {name: gathered[_source(name)] for name in wanted}


def _source(name: str) -> str:
    """The layer whose input this one shares."""
    kind = kind_of(name)
    return name.removesuffix(kind) + SAME_INPUT.get(kind, kind)


def _adder(sums: dict[str, list[Any]], name: str) -> Any:
    def add(_module: Any, args: tuple[Any, ...]) -> None:
        x = args[0].detach().reshape(-1, args[0].shape[-1]).float()
        found = sums.setdefault(name, [0.0, 0.0, 0])
        found[0] = found[0] + x.T @ x
        found[1] = found[1] + x.abs().sum(dim=0)
        found[2] += len(x)

    return add
