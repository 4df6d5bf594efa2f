"""The feed-forward part of each layer: dense, experts, or neither."""

from __future__ import annotations

from turbo_lab.core.errors import ConfigError
from turbo_lab.models import fields as names
from turbo_lab.models.families import Family
from turbo_lab.models.fields import Fields
from turbo_lab.models.layers import FeedForward

_EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")
# Families whose experts have the plain intermediate size.
_PLAIN_WIDTH = frozenset(
    {"mixtral", "phimoe", "gpt_oss", "minimax", "minimax_m2", "minimax_text_01", "llama4_text",
     "granitemoe", "granitemoeshared", "granitemoehybrid", "jamba", "olmoe", "hunyuan_v1_moe"}
)  # fmt: skip
# Families that state how many layers come before the first with experts.
_DENSE_FIRST = frozenset(
    {"deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe", "glm_moe_dsa",
     "glm4_moe_lite"}
)  # fmt: skip
_SHARED = ("n_shared_experts", "moe_num_shared_experts", "num_shared_experts", "num_shared_expert")


def build_feed_forward(
    text: Fields, *, kind: str, index: int, family: Family, model_type: str
) -> FeedForward | None:
    """The feed-forward part of layer ``index``; None where the layer has none."""
    if model_type == "nemotron_h":
        if kind == "moe":
            return _experts(text, family=family, model_type=model_type)
        return _dense(text, family=family) if kind == "mlp" else None
    if model_type in ("mamba", "mamba2", "falcon_mamba"):
        return None
    if text.has("block_configs"):
        return _block(text, index)
    if model_type in _DENSE_FIRST and not text.has("mlp_layer_types"):
        text.count("first_k_dense_replace", zero=True)
    if is_sparse(text, index=index):
        return _experts(text, family=family, model_type=model_type)
    if model_type == "granitemoehybrid":
        return FeedForward(width=text.count("shared_intermediate_size"))
    return _dense(text, family=family, model_type=model_type, index=index)


def is_sparse(text: Fields, *, index: int) -> bool:
    """True when layer ``index`` has experts, in every spelling of the rule."""
    if not text.has(*names.EXPERTS) or text.get(*names.EXPERTS) == 0:
        return False
    layers = text.count(*names.LAYERS)
    if text.has("mlp_layer_types"):
        return (text.items("mlp_layer_types", length=layers) or [])[index] == "sparse"
    if isinstance(text.get("moe_layer_freq"), (list, tuple)):
        return bool((text.items("moe_layer_freq", length=layers) or [])[index])
    if text.has("first_k_dense_replace"):
        step = text.count("moe_layer_freq", default=1)
        return index >= text.count("first_k_dense_replace", zero=True) and index % step == 0
    if text.has("moe_layers"):
        return index in (text.items("moe_layers") or [])
    if text.has("interleave_moe_layer_step"):
        return (index + 1) % text.count("interleave_moe_layer_step") == 0
    if text.has("expert_layer_period"):
        period = text.count("expert_layer_period")
        return index % period == text.count("expert_layer_offset", zero=True)
    if text.has("moe_layer_start_index"):
        return _ernie_sparse(text, index, layers)
    if text.has("num_dense_layers"):
        return index >= text.count("num_dense_layers", zero=True)
    if index in (text.items("mlp_only_layers") or []):
        return False
    return (index + 1) % text.count("decoder_sparse_step", default=1) == 0


def _ernie_sparse(text: Fields, index: int, layers: int) -> bool:
    start = text.count("moe_layer_start_index", zero=True)
    end = text.get("moe_layer_end_index")
    last = layers - 1 if end is None or end < 0 else int(end)
    step = text.count("moe_layer_interval", default=1)
    return start <= index <= last and (index + 1) % step == 0


def _dense(
    text: Fields, *, family: Family, model_type: str = "", index: int = 0
) -> FeedForward | None:
    width_names = (("intermediate_size_mlp",) if text.has("intermediate_size_mlp") else ()) or (
        names.INTERMEDIATE
    )
    value = text.get(*width_names)
    if isinstance(value, (list, tuple)) and len(set(value)) > 1:
        width = int((text.items(text.name_of(*width_names).split(".")[-1]) or [])[index])
    elif value is None and model_type in ("gpt2", "gpt_bigcode", "gptj", "bloom", "mpt", "falcon"):
        ratio = text.count("expansion_ratio", default=4)
        width = ratio * text.count(*names.HIDDEN)
    else:
        width = text.count(*width_names)
    if model_type == "qwen":
        width //= 2  # the first Qwen states gate and up together
    if model_type in ("lfm2", "lfm2_moe"):
        width = _lfm_width(text, width)
    if model_type.startswith("gemma3n") or model_type.startswith("gemma4"):
        width *= _double_wide(text, index)
    return FeedForward(width=width, matrices=family.matrices)


def _double_wide(text: Fields, index: int) -> int:
    shared = text.count("num_kv_shared_layers", default=0, zero=True)
    in_shared = index >= text.count(*names.LAYERS) - shared
    return 2 if text.flag("use_double_wide_mlp") and shared and in_shared else 1


def _lfm_width(text: Fields, width: int) -> int:
    """LFM2 states the width before a 2/3 cut and rounds up to a multiple."""
    if not text.flag("block_auto_adjust_ff_dim", default=True) or text.has("num_experts"):
        return width
    cut = int(2 * width / 3)
    if text.has("block_ffn_dim_multiplier"):
        cut = int(float(text.get("block_ffn_dim_multiplier")) * cut)
    multiple = text.count("block_multiple_of", default=256)
    return multiple * -(-cut // multiple)


def _experts(text: Fields, *, family: Family, model_type: str) -> FeedForward:
    experts, active = text.count(*names.EXPERTS), text.count(*names.ACTIVE)
    if active > experts:
        raise ConfigError(
            f"{text.name_of(*names.ACTIVE)} is {active}, more than the {experts} experts of "
            f"{text.name_of(*names.EXPERTS)}."
        )
    plain = model_type in _PLAIN_WIDTH and not text.has(*_EXPERT_WIDTH)
    width = text.count(*(names.INTERMEDIATE if plain else _EXPERT_WIDTH))
    parallel = 0
    if model_type == "gemma4_text":
        parallel = text.count(*names.INTERMEDIATE)
    return FeedForward(
        width=width,
        experts=experts,
        active_experts=active,
        shared_width=_shared_width(text, width=width, model_type=model_type),
        matrices=family.matrices,
        parallel_width=parallel,
    )


def _shared_width(text: Fields, *, width: int, model_type: str) -> int:
    if model_type == "llama4_text":
        return width
    if model_type == "hunyuan_v1_moe":
        return text.count("intermediate_size")
    if text.has("shared_expert_intermediate_size"):
        return text.count("shared_expert_intermediate_size", zero=True)
    if text.has("moe_shared_expert_intermediate_size"):
        count = text.count("n_shared_experts", default=1, zero=True)
        return count * text.count("moe_shared_expert_intermediate_size", zero=True)
    if text.has("shared_intermediate_size"):
        return text.count("shared_intermediate_size", zero=True)
    return width * text.count(*_SHARED, default=0, zero=True)


def _block(text: Fields, index: int) -> FeedForward | None:
    """Nemotron-NAS: the width is ``2/3 * ffn_mult * hidden``, rounded up to a multiple of 256."""
    block = (text.items("block_configs") or [])[index]
    ffn = Fields(block, f"{text.where}block_configs[{index}].").child("ffn")
    if ffn.flag("no_op") or ffn.flag("replace_with_linear"):
        return None
    if ffn.has("intermediate_size"):
        return FeedForward(width=ffn.count("intermediate_size"))
    if not ffn.has("ffn_mult"):
        raise ConfigError(f"{ffn.where}ffn_mult is missing or null; a number is needed.")
    cut = int(2 * float(ffn.get("ffn_mult")) * text.count(*names.HIDDEN) / 3)
    return FeedForward(width=256 * -(-cut // 256))
