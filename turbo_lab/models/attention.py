"""Builds the attention part of each layer from the config's fields."""

from __future__ import annotations

from typing import Any

from turbo_lab.core.errors import ConfigError
from turbo_lab.models import fields as names
from turbo_lab.models.families import Family
from turbo_lab.models.fields import Fields
from turbo_lab.models.layers import Attention, Indexer, Latent

_SPARSE = ("deepseek_v32", "glm_moe_dsa")  # an indexer is part of the architecture
_HEAD_DIM = ("head_dim", "attention_head_dim", "hidden_size_per_head", "kv_channels", "d_kv")


def build_attention(
    text: Fields, *, kind: str, index: int, family: Family, model_type: str, layers: int
) -> Attention:
    """The attention of layer ``index``, whose ``kind`` is full, sliding or chunked.

    Raises ConfigError when heads and KV heads do not divide, or a window is missing.
    """
    if family.mla and _is_latent(text):
        return _latent_attention(text, model_type)
    text = text.for_layer(index)
    heads = query_heads(text, kind=kind)
    kv_heads = _kv_heads(text, kind=kind, index=index, heads=heads, model_type=model_type)
    dim_k = _key_dim(text, kind=kind, heads=heads)
    dim_v = _value_dim(text, kind=kind, dim_k=dim_k)
    shared = text.count("num_kv_shared_layers", default=0, zero=True)
    window = _window(text, kind=kind, index=index)
    return Attention(
        kind=kind,  # type: ignore[arg-type]
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim_k=dim_k,
        head_dim_v=dim_v,
        window_tokens=None if window is None else window + family.window_extra_tokens,
        shares_kv=index >= layers - shared,
    )


def query_heads(text: Fields, *, kind: str = "full") -> int:
    """Query heads of a layer of this kind."""
    if kind == "sliding" and text.has("swa_num_attention_heads"):
        return text.count("swa_num_attention_heads")
    return text.count(*names.HEADS)


def _is_latent(text: Fields) -> bool:
    if text.has("kv_lora_rank"):
        return True
    if text.has("qk_rope_head_dim", "qk_nope_head_dim"):
        raise ConfigError(
            f"{text.where}qk_rope_head_dim is given without kv_lora_rank; MLA needs both."
        )
    raise ConfigError(f"{text.name_of('kv_lora_rank')} is missing or null; this family is MLA.")


def _latent_attention(text: Fields, model_type: str) -> Attention:
    heads = text.count(*names.HEADS)
    nope = text.count("qk_nope_head_dim")
    latent = Latent(
        kv_rank=text.count("kv_lora_rank"),
        rope_dim=text.count("qk_rope_head_dim", zero=True),
        nope_dim=nope,
        v_dim=text.count("v_head_dim"),
        q_rank=text.count("q_lora_rank") if text.has("q_lora_rank") else None,
    )
    qk_dim = latent.nope_dim + latent.rope_dim
    if text.has("qk_head_dim") and text.count("qk_head_dim") != qk_dim:
        raise ConfigError(
            f"{text.where}qk_head_dim is {text.get('qk_head_dim')}, but qk_nope_head_dim + "
            f"qk_rope_head_dim is {qk_dim}."
        )
    return Attention(
        kind="mla",
        query_heads=heads,
        kv_heads=text.count(*names.KV_HEADS, default=heads),
        head_dim_k=qk_dim,
        head_dim_v=latent.v_dim,
        latent=latent,
        indexer=_indexer(text, model_type),
    )


def _indexer(text: Fields, model_type: str) -> Indexer | None:
    if model_type not in _SPARSE and not text.has("index_topk"):
        return None
    return Indexer(
        heads=text.count("index_n_heads"),
        head_dim=text.count("index_head_dim"),
        topk=text.count("index_topk"),
    )


def _kv_heads(text: Fields, *, kind: str, index: int, heads: int, model_type: str) -> int:
    if text.has("block_configs"):
        group = _block_attention(text, index).count("n_heads_in_group")
        kv_heads, name = _divide(heads, group, "n_heads_in_group"), "n_heads_in_group"
    elif kind == "sliding" and text.has("swa_num_key_value_heads"):
        kv_heads, name = text.count("swa_num_key_value_heads"), "swa_num_key_value_heads"
    elif kind == "full" and text.has("num_global_key_value_heads"):
        k_eq_v = text.flag("attention_k_eq_v")
        name = "num_global_key_value_heads" if k_eq_v else names.KV_HEADS[0]
        kv_heads = text.count(name)
    else:
        kv_heads, name = _plain_kv_heads(text, heads, model_type), text.name_of(*names.KV_HEADS)
    _divide(heads, kv_heads, name)
    return kv_heads


def _plain_kv_heads(text: Fields, heads: int, model_type: str) -> int:
    """KV heads from the usual fields; the multi-query flags of Falcon, BigCode and ChatGLM."""
    if model_type == "falcon":
        if text.flag("new_decoder_architecture"):
            return text.count("num_kv_heads", "n_head_kv", default=heads)
        return 1 if text.flag("multi_query", default=True) else heads
    if model_type == "gpt_bigcode":
        return 1 if text.flag("multi_query", default=True) else heads
    if text.has("multi_query_attention") and not text.flag("multi_query_attention"):
        return heads
    per_layer = text.get("num_key_value_heads")
    if isinstance(per_layer, (list, tuple)):
        raise ConfigError(
            f"{text.where}num_key_value_heads is a list; allowed: one whole number for all layers "
            "(or block_configs with n_heads_in_group)."
        )
    return text.count(*names.KV_HEADS, default=heads)


def _divide(heads: int, part: int, name: str) -> int:
    if heads % part:
        raise ConfigError(
            f"num_attention_heads is {heads} and {name} is {part}; the first must be a multiple "
            "of the second."
        )
    return heads // part


def _key_dim(text: Fields, *, kind: str, heads: int) -> int:
    if kind == "sliding" and text.has("swa_head_dim"):
        return text.count("swa_head_dim")
    if kind == "full" and text.has("global_head_dim"):
        return text.count("global_head_dim")
    if text.has(*_HEAD_DIM):
        return text.count(*_HEAD_DIM)
    hidden = text.count(*names.HIDDEN)
    if hidden % heads:
        raise ConfigError(
            f"{text.where}head_dim is missing, and {text.name_of(*names.HIDDEN)} {hidden} is no "
            f"multiple of {text.name_of(*names.HEADS)} {heads}."
        )
    return hidden // heads


def _value_dim(text: Fields, *, kind: str, dim_k: int) -> int:
    if kind == "sliding" and text.has("swa_v_head_dim"):
        return text.count("swa_v_head_dim")
    return text.count("v_head_dim", default=dim_k)


def _window(text: Fields, *, kind: str, index: int) -> int | None:
    if kind == "full":
        return None
    if kind == "chunked":
        return text.count("attention_chunk_size")
    if text.has("block_configs"):
        return _block_attention(text, index).count("window_length")
    return text.count("sliding_window", "sliding_window_size")


def _block_attention(text: Fields, index: int) -> Fields:
    block: Any = (text.items("block_configs") or [])[index]
    return Fields(block, f"{text.where}block_configs[{index}].").child("attention")
