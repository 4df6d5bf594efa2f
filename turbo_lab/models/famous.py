"""Famous wrong formulas for the memory of a conversation, each beside the right one.

Every formula changes one thing in the right one, so that its error is the error of that thing.
Sources: issues about public calculators (rasbt/LLMs-from-scratch#922, LMCache#688, hf-mem#60,
LLM-Viewer#12, scaling-book#33) and the course's first source document (GB for GiB).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GB, GiB
from turbo_lab.models.layers import Attention
from turbo_lab.models.memory import (
    indexer_bytes_per_token,
    kv_cache_bytes,
    layer_bytes_per_token,
    live_tokens,
    state_bytes_per_request,
)
from turbo_lab.models.quantization import weight_format
from turbo_lab.models.spec import ModelSpec

_VALUE_BYTES = 2  # the cache of all comparisons is bf16
Claim = Callable[[ModelSpec, int], "float | None"]


@dataclass(frozen=True)
class WrongFormula:
    """One mistake. ``gib(spec, context_tokens)`` is what it says one conversation holds.

    ``gib`` is None where the model has no such part to get wrong (MLA has no KV heads).
    ``fails_on``: a catalogue id of a model where the mistake shows; ``escapes_on``: one where the
    formula gives the right number all the same, or None.
    """

    name: str
    mistake: str
    gib: Claim
    fails_on: str
    escapes_on: str | None


def conversation_bytes(spec: ModelSpec, *, context_tokens: int) -> int:
    """Bytes one conversation of ``context_tokens`` tokens holds with a bf16 cache.

    Keys and values (windows respected), indexer keys and fixed states; no block rounding.
    Raises UsageError for a negative length.
    """
    return (
        kv_cache_bytes(spec, batch=1, context_tokens=context_tokens)
        + indexer_bytes_per_token(spec) * context_tokens
        + state_bytes_per_request(spec)
    )


def error_factors(
    specs: Iterable[ModelSpec], *, context_tokens: int
) -> dict[str, dict[str, float | None]]:
    """Formula to model to (claimed / right) size of one conversation; 1.0 is right by luck.

    Raises UsageError for a length below 1.
    """
    if context_tokens < 1:
        raise UsageError(f"context_tokens is {context_tokens}; allowed: whole numbers from 1.")
    models = tuple(specs)
    return {
        formula.name: {spec.name: _factor(formula, spec, context_tokens) for spec in models}
        for formula in FAMOUS
    }


def _factor(formula: WrongFormula, spec: ModelSpec, tokens: int) -> float | None:
    claimed = formula.gib(spec, tokens)
    if claimed is None:
        return None
    return claimed * GiB / conversation_bytes(spec, context_tokens=tokens)


def _changed(change: Callable[[Attention], Attention | None]) -> Claim:
    """The right sum with every attention layer replaced; None when ``change`` has no meaning."""

    def gib(spec: ModelSpec, tokens: int) -> float | None:
        layers = [change(layer) for layer in spec.attention_layers]
        if not layers or None in layers:
            return None
        total = conversation_bytes(spec, context_tokens=tokens)
        for right, wrong in zip(spec.attention_layers, layers, strict=True):
            assert wrong is not None
            live = live_tokens(right, context_tokens=tokens)
            total += live * (_layer(wrong) - _layer(right))
        return total / GiB

    return gib


def _layer(layer: Attention) -> int:
    return layer_bytes_per_token(layer, dtype="bf16")


def _query_heads(layer: Attention) -> Attention | None:
    return None if layer.latent else replace(layer, kv_heads=layer.query_heads)


def _group_size(layer: Attention) -> Attention | None:
    if layer.latent:
        return None
    return replace(layer, kv_heads=layer.query_heads // layer.kv_heads)


def _as_mha(layer: Attention) -> Attention | None:
    return replace(layer, latent=None, kv_heads=layer.query_heads) if layer.latent else None


def _hidden_over_heads(spec: ModelSpec, tokens: int) -> float | None:
    def quotient(layer: Attention) -> Attention | None:
        dim = spec.hidden // layer.query_heads
        return None if layer.latent else replace(layer, head_dim_k=dim, head_dim_v=dim)

    return _changed(quotient)(spec, tokens)


def _all_layers_alike(spec: ModelSpec, tokens: int) -> float | None:
    layers = spec.attention_layers
    one = next((layer for layer in layers if layer.grows), layers[0] if layers else None)
    return None if one is None else len(spec.layers) * _layer(one) * tokens / GiB


def _weight_dtype(spec: ModelSpec, tokens: int) -> float | None:
    chosen = weight_format(spec)
    if chosen is None:
        return None
    width = chosen.bits / 8 if chosen.bits else _VALUE_BYTES
    values = kv_cache_bytes(spec, batch=1, context_tokens=tokens)
    rest = conversation_bytes(spec, context_tokens=tokens) - values
    return (values * width / _VALUE_BYTES + rest) / GiB


def _keys_alone(spec: ModelSpec, tokens: int) -> float | None:
    layers = [layer for layer in spec.attention_layers if not layer.shares_kv]
    if any(layer.latent for layer in layers):
        return None  # one latent stands for both: here the factor 2 itself would be wrong
    keys = sum(
        live_tokens(layer, context_tokens=tokens) * layer.kv_heads * layer.head_dim_k
        for layer in layers
    )
    rest = conversation_bytes(spec, context_tokens=tokens) - kv_cache_bytes(
        spec, batch=1, context_tokens=tokens
    )
    return (keys * _VALUE_BYTES + rest) / GiB


def _gb_as_gib(spec: ModelSpec, tokens: int) -> float:
    return conversation_bytes(spec, context_tokens=tokens) / GB


FAMOUS: tuple[WrongFormula, ...] = (
    WrongFormula(
        "attention heads for KV heads",
        "GQA and MQA keep keys and values for fewer heads than there are queries",
        _changed(_query_heads), "llama-3.1-8b", "llama-2-7b",
    ),
    WrongFormula(
        "hidden / heads for head_dim",
        "config.json may state another head_dim; the quotient is only its default",
        _hidden_over_heads, "qwen3-0.6b", "llama-3.1-8b",
    ),
    WrongFormula(
        "one formula for all layers",
        "window layers keep their window, state layers keep no tokens at all",
        _all_layers_alike, "qwen3.5-27b", "llama-3.1-8b",
    ),
    WrongFormula(
        "MLA priced as MHA",
        "latent attention keeps one short vector per layer, not a key and a value per head",
        _changed(_as_mha), "deepseek-v3", None,
    ),
    WrongFormula(
        "group size for number of groups",
        "heads / KV heads says how many queries share a key, not how many keys there are",
        _changed(_group_size), "llama-3.1-8b", "llama-3.1-70b",
    ),
    WrongFormula(
        "cache in the weights' dtype",
        "4-bit or 8-bit weights say nothing about the cache: it stays at 16 bits unless the server "
        "or the checkpoint (kv_cache_scheme) asks for less",
        _weight_dtype, "gpt-oss-20b", "llama-3.1-8b",
    ),
    WrongFormula(
        "factor 2 missing",
        "keys and values are both kept",
        _keys_alone, "llama-3.1-8b", None,
    ),
    WrongFormula(
        "GB for GiB",
        "10**9 bytes are not 2**30 bytes; engines and drivers count in GiB",
        _gb_as_gib, "llama-3.1-8b", None,
    ),
)  # fmt: skip
