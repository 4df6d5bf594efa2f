"""Turns a config.json into a :class:`ModelSpec`.

Documented defaults: ``head_dim`` is hidden / heads; KV heads are the attention heads; dtype is
bf16 and marked as assumed; tied embeddings are the architecture's own default. Everything else
that is missing, null or contradictory is an error that names the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turbo_lab.core.errors import ConfigError, did_you_mean
from turbo_lab.models import fields as names
from turbo_lab.models.attention import build_attention, query_heads
from turbo_lab.models.dtypes import canonical_dtype
from turbo_lab.models.families import Family, canonical_type, family_of, known_model_types
from turbo_lab.models.feedforward import build_feed_forward
from turbo_lab.models.fields import Fields
from turbo_lab.models.layers import Layer
from turbo_lab.models.patterns import layer_kinds
from turbo_lab.models.spec import ModelSpec
from turbo_lab.models.states import build_state

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_ATTENTION = ("full", "sliding", "chunked", "parallel")


def read_spec(config: Mapping[str, Any], *, name: str | None = None) -> ModelSpec:
    """See :func:`turbo_lab.models.spec.from_hf_config`."""
    root, text = _parts(config)
    model_type = _model_type(root, text)
    family = family_of(model_type)
    layers = _layer_count(text)
    built = _layers(text, model_type=model_type, family=family, layers=layers)
    dtype = text.get("dtype", "torch_dtype") or root.get("dtype", "torch_dtype")
    has_heads = any(layer.attention for layer in built)
    return ModelSpec(
        name=name or _display_name(root),
        model_type=model_type,
        architecture=_architecture(root),
        layers=built,
        hidden=text.count(*names.HIDDEN),
        query_heads=query_heads(text) if has_heads else 0,
        vocab=text.count(*names.VOCAB),
        context_tokens=_context(text, required=has_heads),
        tied_embeddings=_tied(root, text, family),
        dtype=canonical_dtype(dtype if isinstance(dtype, str) else "bf16", field="torch_dtype"),
        dtype_assumed=not isinstance(dtype, str),
        quantization=_quantization(root, text),
        config=text.values,
        root_config=config,
    )


def _parts(config: Mapping[str, Any]) -> tuple[Fields, Fields]:
    if not isinstance(config, Mapping) or not config:
        raise ConfigError("config.json must hold an object with the model's fields; it is empty.")
    root = Fields(config)
    for part in _TEXT_PARTS:
        if root.has(part):
            text = root.child(part)
            if part == "thinker_config" and text.has("text_config"):
                text = text.child("text_config")
            return root, text
    return root, root


def _model_type(root: Fields, text: Fields) -> str:
    """The language part's type; a nested part may leave it to its root."""
    for value in (text.get("model_type"), root.get("model_type")):
        if value is not None and canonical_type(str(value)) in known_model_types():
            return canonical_type(str(value))
    found = text.get("model_type") or root.get("model_type")
    if found is None:
        raise ConfigError(
            "model_type is missing in config.json, and without it the kind of attention is a "
            f"guess.{did_you_mean('', known_model_types())}"
        )
    family_of(str(found))  # raises with the closest names
    return str(found)


def _layer_count(text: Fields) -> int:
    """Layers as the config counts them; families that only give a list of layers use its length."""
    if not text.has(*names.LAYERS):
        for name in ("layers_block_type", "layer_types", "block_configs"):
            if text.has(name):
                return len(text.items(name) or [])
        if text.has("hybrid_override_pattern"):
            return len(str(text.get("hybrid_override_pattern")))
    return text.count(*names.LAYERS)


def _layers(text: Fields, *, model_type: str, family: Family, layers: int) -> tuple[Layer, ...]:
    kinds = layer_kinds(text, model_type=model_type, layers=layers, windows=family.windows)
    built: list[Layer] = []
    for index, kind in enumerate(kinds):
        attention = state = None
        if kind in _ATTENTION:
            attention = build_attention(
                text,
                kind="full" if kind == "parallel" else kind,
                index=index,
                family=family,
                model_type=model_type,
                layers=layers,
            )
        if kind in ("state", "parallel"):
            state = build_state(text, model_type=model_type)
        feed_forward = build_feed_forward(
            text, kind=kind, index=index, family=family, model_type=model_type
        )
        built.append(Layer(attention, state, feed_forward))
    return tuple(built)


def _context(text: Fields, *, required: bool) -> int:
    if not required and not text.has(*names.CONTEXT):
        return 0  # a model of states alone has no longest context
    return text.count(*names.CONTEXT)


def _tied(root: Fields, text: Fields, family: Family) -> bool:
    if root.has("tie_word_embeddings"):
        return root.flag("tie_word_embeddings")
    return text.flag("tie_word_embeddings", default=family.tied)


def _architecture(root: Fields) -> str:
    listed = root.items("architectures") or []
    return str(listed[0]) if listed else str(root.get("model_type"))


def _display_name(root: Fields) -> str:
    return str(root.get("_name_or_path") or root.get("model_type") or "model")


def _quantization(root: Fields, text: Fields) -> str | None:
    """The checkpoint's weight format (``fp8``, ``mxfp4``, ...). The KV cache keeps its own."""
    for part in (root, text):
        if part.has("quantization_config"):
            inner = part.child("quantization_config")
            return str(inner.get("quant_method", "quant_algo") or "unnamed")
    return None
