"""Parameters of the vision towers that come with language models."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from turbo_lab.models.fields import Fields
from turbo_lab.models.spec import ModelSpec

# What the library takes where a Llama 4 config carries no vision_config of its own.
_LLAMA4_DEFAULTS = MappingProxyType(
    {
        "hidden_size": 768,
        "intermediate_size": 5632,
        "num_hidden_layers": 34,
        "num_channels": 3,
        "image_size": 448,
        "patch_size": 14,
        "vision_output_dim": 7680,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
    }
)


def vision_parameters(spec: ModelSpec) -> int | None:
    """Parameters of the vision tower and its projection; 0 without one, None when unknown.

    Source: checked against transformers' own classes on the meta device.
    """
    root = Fields(spec.root_config)
    kind = str(root.get("model_type"))
    if kind == "llama4" and not root.has("vision_config"):
        return _llama4(spec, Fields(_LLAMA4_DEFAULTS, "vision_config."))
    if not root.has("vision_config"):
        return 0
    count = _TOWERS.get(kind)
    return None if count is None else count(spec, root.child("vision_config"))


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _block(width: int, inner: int) -> int:
    """A plain transformer block: biased attention and MLP, two LayerNorms."""
    return 4 * _linear(width, width) + _linear(width, inner) + _linear(inner, width) + 4 * width


def _qwen3(spec: ModelSpec, vision: Fields) -> int:
    width, inner = vision.count("hidden_size"), vision.count("intermediate_size")
    merged = width * vision.count("spatial_merge_size") ** 2
    out = vision.count("out_hidden_size")
    merger = _linear(merged, merged) + _linear(merged, out)
    deep = len(vision.items("deepstack_visual_indexes") or [])
    return (
        _patches(vision, width)
        + vision.count("num_position_embeddings") * width
        + vision.count("depth") * _block(width, inner)
        + merger
        + 2 * width
        + deep * (merger + 2 * merged)
    )


def _patches(vision: Fields, width: int) -> int:
    channels = vision.count("in_channels", "in_chans", default=3)
    patch = vision.count("patch_size") ** 2 * vision.count("temporal_patch_size", default=2)
    return channels * patch * width + width


def _qwen2(spec: ModelSpec, vision: Fields) -> int:
    width = vision.count("embed_dim")
    inner = width * vision.count("mlp_ratio", default=4)
    merged = width * vision.count("spatial_merge_size", default=2) ** 2
    merger = _linear(merged, merged) + _linear(merged, vision.count("hidden_size")) + 2 * width
    patches = _patches(vision, width) - width  # this convolution has no bias
    return patches + vision.count("depth") * _block(width, inner) + merger


def _qwen25(spec: ModelSpec, vision: Fields) -> int:
    width, inner = vision.count("hidden_size"), vision.count("intermediate_size")
    merged = width * vision.count("spatial_merge_size", default=2) ** 2
    merger = _linear(merged, merged) + _linear(merged, vision.count("out_hidden_size")) + width
    block = 4 * _linear(width, width) + 2 * _linear(width, inner) + _linear(inner, width)
    patches = _patches(vision, width) - width
    return patches + vision.count("depth") * (block + 2 * width) + merger


def _siglip(spec: ModelSpec, vision: Fields) -> int:
    width, inner = vision.count("hidden_size"), vision.count("intermediate_size")
    patch, channels = vision.count("patch_size"), vision.count("num_channels", default=3)
    tower = channels * patch**2 * width + width
    tower += (vision.count("image_size") // patch) ** 2 * width
    tower += vision.count("num_hidden_layers") * _block(width, inner) + 2 * width
    if vision.flag("vision_use_head", default=True):
        tower += width + _block(width, inner) - 2 * width
    return tower + width * spec.hidden + width


def _pixtral(spec: ModelSpec, vision: Fields) -> int:
    root = Fields(spec.root_config)
    width, inner = vision.count("hidden_size"), vision.count("intermediate_size")
    attention = vision.count("num_attention_heads") * vision.count("head_dim") * width
    layers = vision.count("num_hidden_layers") * (4 * attention + 3 * width * inner + 2 * width)
    patch = vision.count("num_channels", default=3) * vision.count("patch_size") ** 2 * width
    merge = width * root.count("spatial_merge_size", default=2) ** 2 * width
    out = width * spec.hidden + spec.hidden**2
    if root.flag("multimodal_projector_bias"):
        out += 2 * spec.hidden
    return patch + width + layers + width + merge + out


def _gemma4(spec: ModelSpec, vision: Fields) -> int:
    width, inner = vision.count("hidden_size"), vision.count("intermediate_size")
    head_dim = vision.count("head_dim")
    queries = vision.count("num_attention_heads") * head_dim
    keys = vision.count("num_key_value_heads") * head_dim
    layer = 2 * width * (queries + keys) + 2 * head_dim + 3 * width * inner + 4 * width
    patch = 3 * vision.count("patch_size") ** 2 * width
    positions = 2 * vision.count("position_embedding_size") * width
    return patch + positions + vision.count("num_hidden_layers") * layer + width * spec.hidden


def _llama4(spec: ModelSpec, vision: Fields) -> int:
    width, inner = vision.count("hidden_size"), vision.count("intermediate_size")
    patch, channels = vision.count("patch_size"), vision.count("num_channels", default=3)
    places = (vision.count("image_size") // patch) ** 2 + 1
    mid, out = vision.count("projector_input_dim"), vision.count("projector_output_dim")
    tower = width + places * width + channels * patch**2 * width + 4 * width
    tower += vision.count("num_hidden_layers") * _block(width, inner)
    return tower + inner * mid + mid * out + vision.count("vision_output_dim") * spec.hidden


_TOWERS: MappingProxyType[str, Callable[[ModelSpec, Fields], int]] = MappingProxyType(
    {
        "qwen2_vl": _qwen2,
        "qwen2_5_vl": _qwen25,
        "qwen3_vl": _qwen3,
        "qwen3_vl_moe": _qwen3,
        "qwen3_5": _qwen3,
        "qwen3_5_moe": _qwen3,
        "gemma3": _siglip,
        "gemma4": _gemma4,
        "llama4": _llama4,
        "mistral3": _pixtral,
    }
)
