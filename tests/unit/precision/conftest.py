"""A tiny random Llama whose keys have outlier channels, and passes over a text in chunks."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

HEADS, DIM, LAYERS = 2, 16, 2


@pytest.fixture(scope="module")
def llama() -> Any:
    """Random weights; channel 3 of every key head carries an offset, as in real models."""
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    transformers = pytest.importorskip("transformers", reason="needs the cpu environment")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=HEADS, head_dim=DIM, initializer_range=0.3,
        attention_bias=True, eos_token_id=95,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.k_proj.bias.view(HEADS, DIM)[:, DIM - 1] = 40.0
    return model


@pytest.fixture(scope="module")
def ids() -> Any:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    return torch.randint(0, 95, (2, 60), generator=torch.Generator().manual_seed(1))


def passes(model: Any, ids: Any, cache: Any, *, step: int) -> Any:
    """Logits of a text that is fed in chunks of ``step`` tokens."""
    import torch

    attached = getattr(cache, "attached", None)
    out = []
    with torch.inference_mode():
        for start in range(0, ids.shape[1], step):
            with attached(model) if attached else contextlib.nullcontext():
                part = model(ids[:, start : start + step], past_key_values=cache, use_cache=True)
            out.append(part.logits)
    return torch.cat(out, dim=1)
