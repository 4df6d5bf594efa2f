"""Query, KV cache and attention output of a real decode step, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from turbo_lab.core.errors import MissingDependencyError, UsageError

NAME = "turbo_lab_capture"


@dataclass(frozen=True)
class Capture:
    """What one decode step of one layer attends to, from the real model, as float64.

    ``query`` (heads, dim); ``keys`` and ``values`` (tokens, kv_heads, dim) as they lie in the
    cache; ``output`` (heads, dim) is the model's own attention result, of float32 arithmetic.
    """

    layer: int
    query: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    output: np.ndarray


def capture_step(subject: Any, ids: Any) -> list[Capture]:
    """Feed all tokens but the last, then decode the last one and keep what each layer saw.

    The model's own attention (``sdpa``) does the work; it is only listened to.
    Raises UsageError for fewer than two tokens.
    """
    if len(ids) < 2:
        raise UsageError(f"{len(ids)} tokens; a decode step with a context needs at least 2")
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

        from turbo_lab.precision.eviction import attention_modules
    except ImportError as error:
        raise MissingDependencyError("transformers", needed_for="a real KV cache") from error
    AttentionInterface.register(NAME, _listen)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model, cache = subject.model, subject.new_cache()
    subject.forward(ids[:-1], cache, last_only=True)
    found: dict[int, Capture] = {}
    before, modules = model.config._attn_implementation, attention_modules(model)
    for module in modules:
        setattr(module, NAME, found)
    try:
        model.set_attn_implementation(NAME)
        subject.forward(ids[-1:], cache, last_only=True)
    finally:
        model.set_attn_implementation(before)
        for module in modules:
            delattr(module, NAME)
    return [found[layer] for layer in sorted(found)]


def _listen(module: Any, query: Any, key: Any, value: Any, mask: Any, **told: Any) -> Any:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    output, weights = sdpa_attention_forward(module, query, key, value, mask, **told)
    getattr(module, NAME)[module.layer_idx] = Capture(
        layer=module.layer_idx,
        query=query[0, :, -1].double().numpy(),
        keys=key[0].transpose(0, 1).double().numpy(),
        values=value[0].transpose(0, 1).double().numpy(),
        output=output[0, -1].double().numpy(),
    )
    return output, weights
