"""The table of sines and cosines that the engine keeps beside the weights."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from turbo_lab.models.spec import ModelSpec

_NO_ROTARY = frozenset(
    {"gpt2", "gpt_bigcode", "opt", "bloom", "mpt", "jamba", "nemotron_h", "mamba", "mamba2",
     "falcon_mamba", "kimi_linear"}
)  # fmt: skip
# Share of each head that is rotated, where the family's code says so and the config may not.
_DEFAULT_SHARE = MappingProxyType({"gpt_neox": 0.25, "phi": 0.5, "glm": 0.5, "glm4": 0.5,
                                   "glm4_moe": 0.5, "stablelm": 0.25, "persimmon": 0.5,
                                   "nemotron": 0.5})  # fmt: skip
_TWO_TABLES = ("gemma3_text", "gemma3n_text", "gemma4_text", "mimo_v2_flash")
_IMAGE_POSITIONS = 4  # tables of models with image positions are four times as long


def rotary_cache_bytes(spec: ModelSpec, *, element_bytes: int = 2) -> int:
    """Bytes of the rotary table(s): ``positions * rotated dims * element``; 0 without rotary.

    One table serves all layers; models with a local and a global base hold two. YaRN tables are
    ``factor`` times the original length. Source: vLLM's ``get_rope`` and its ``cos_sin_cache``.
    """
    if spec.model_type in _NO_ROTARY or not spec.attention_layers:
        return 0
    dims = sorted({_rotated(spec, kind) for kind in _kinds(spec)})
    rope = spec.config.get("rope_parameters") or spec.config.get("rope_scaling")
    rope = rope if isinstance(rope, Mapping) else {}
    positions = _positions(spec, rope)
    tables = [*dims, *dims] if spec.model_type in _TWO_TABLES and len(dims) == 1 else dims
    if any(layer.indexer for layer in spec.attention_layers):
        # The indexer rotates in halves, the attention in pairs, unless the config says pairs too.
        tables = [*dims, *([] if spec.config.get("indexer_rope_interleave") else dims)]
    width = 4 if spec.model_type == "gpt_oss" else element_bytes  # its tables are fp32
    return positions * sum(tables) * width


def _kinds(spec: ModelSpec) -> set[str]:
    return {layer.kind for layer in spec.attention_layers}


def _rotated(spec: ModelSpec, kind: str) -> int:
    layer = next(la for la in spec.attention_layers if la.kind == kind)
    if layer.latent is not None:
        return layer.latent.rope_dim
    config = spec.config
    for name in ("rotary_dim", "rotary_emb_dim"):
        if isinstance(config.get(name), int):
            return int(config[name])
    share = _share(config, kind)
    if share is None:
        share = _DEFAULT_SHARE.get(spec.model_type, 1.0)
    return int(layer.head_dim_k * share)


def _share(config: Mapping[str, Any], kind: str) -> float | None:
    rope = config.get("rope_parameters")
    if isinstance(rope, Mapping):
        inner = rope.get(f"{kind}_attention", rope)
        if isinstance(inner, Mapping) and inner.get("rope_type") == "proportional":
            return 1.0  # the table spans the head; the unused part is zero
        if isinstance(inner, Mapping) and "partial_rotary_factor" in inner:
            return float(inner["partial_rotary_factor"])
    for name in ("partial_rotary_factor", "rotary_pct", "rope_pct"):
        if isinstance(config.get(name), (int, float)):
            return float(config[name])
    return None


def _positions(spec: ModelSpec, rope: Mapping[str, Any]) -> int:
    positions = spec.context_tokens
    kind = rope.get("rope_type") or rope.get("type")
    original = rope.get("original_max_position_embeddings")
    if kind == "yarn" and original and rope.get("factor"):
        positions = int(original * float(rope["factor"]))
    if spec.root_config.get("vision_config") and _has_image_positions(spec, rope):
        positions *= _IMAGE_POSITIONS
    return positions


def _has_image_positions(spec: ModelSpec, rope: Mapping[str, Any]) -> bool:
    return "mrope_section" in rope or str(spec.root_config.get("model_type", "")).startswith("qwen")
