"""Turns a config.json into a :class:`ModelSpec`.

Documented defaults, everything else missing is an error that names the field:
``head_dim`` is hidden / heads; KV heads are the attention heads; dtype is bf16 and marked as
assumed; tied embeddings are the architecture's own default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turbo_lab.core.errors import ConfigError
from turbo_lab.models import fields as names
from turbo_lab.models.dtypes import canonical_dtype
from turbo_lab.models.fields import Fields
from turbo_lab.models.layers import Attention, FeedForward, Layer
from turbo_lab.models.spec import ModelSpec


def read_spec(config: Mapping[str, Any], *, name: str | None = None) -> ModelSpec:
    """See :func:`turbo_lab.models.spec.from_hf_config`."""
    root = Fields(config)
    text = root.child("text_config") if root.has("text_config") else root
    layers = text.count(*names.LAYERS)
    dtype = text.get("dtype", "torch_dtype") or root.get("dtype", "torch_dtype")
    attention = _plain_attention(text)
    feed_forward = FeedForward(width=text.count(*names.INTERMEDIATE))
    return ModelSpec(
        name=name or str(root.get("_name_or_path") or root.get("model_type")),
        model_type=str(text.get("model_type")),
        architecture=str((root.get("architectures") or ["?"])[0]),
        layers=(Layer(attention, None, feed_forward),) * layers,
        hidden=text.count(*names.HIDDEN),
        query_heads=text.count(*names.HEADS),
        vocab=text.count(*names.VOCAB),
        context_tokens=text.count(*names.CONTEXT),
        tied_embeddings=text.flag("tie_word_embeddings"),
        dtype=canonical_dtype(dtype or "bf16"),
        dtype_assumed=dtype is None,
        quantization=None,
        config=text.values,
        root_config=config,
    )


def _plain_attention(text: Fields) -> Attention:
    hidden, heads = text.count(*names.HIDDEN), text.count(*names.HEADS)
    kv_heads = text.count(*names.KV_HEADS, default=heads)
    if heads % kv_heads:
        raise ConfigError(
            f"{text.name_of(*names.HEADS)} is {heads} and {text.name_of(*names.KV_HEADS)} is "
            f"{kv_heads}; the first must be a multiple of the second."
        )
    if not text.has("head_dim") and hidden % heads:
        raise ConfigError(
            f"head_dim is missing, and hidden_size {hidden} is no multiple of {heads} heads."
        )
    head_dim = text.count("head_dim", default=hidden // heads)
    return Attention("full", heads, kv_heads, head_dim, head_dim)
