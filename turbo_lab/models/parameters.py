"""Parameter counts from the spec alone, equal to those of the library's own model."""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.models.extras import layer_extras, lookup_tables, root_extras
from turbo_lab.models.families import Family, family_of
from turbo_lab.models.fields import Fields
from turbo_lab.models.layers import Attention, FeedForward, Latent, Layer, State
from turbo_lab.models.spec import ModelSpec
from turbo_lab.models.vision import vision_parameters


@dataclass(frozen=True)
class ParameterCount:
    """Parameters by part. ``head`` is 0 when it shares the embedding's weights.

    ``mixers``: attention and state layers; ``experts``: routed experts only; ``dense``: dense and
    shared feed-forward parts and routers; ``vision`` is None when a tower exists that cannot be
    counted here. ``active``: language parameters one token uses, embedding lookup included.
    ``lookups``: the part of ``extras`` of which a token reads one row (learned positions, inputs
    for each layer).
    """

    embedding: int
    head: int
    mixers: int
    dense: int
    experts: int
    norms: int
    extras: int
    vision: int | None
    active: int
    lookups: int = 0

    @property
    def text(self) -> int:
        """Parameters of the language part."""
        return (
            self.embedding
            + self.head
            + self.mixers
            + self.dense
            + self.experts
            + self.norms
            + self.extras
        )

    @property
    def total(self) -> int:
        """Parameters of the whole model (language and vision)."""
        return self.text + (self.vision or 0)


def count_parameters(spec: ModelSpec) -> ParameterCount:
    """Count every weight, bias and norm of the model that config.json describes.

    Extra prediction layers (MTP) are not part of the library's model and are not counted.
    Source: checked against transformers' own classes on the meta device.
    """
    family, text = family_of(spec.model_type), Fields(spec.config)
    mixers = dense = experts = norms = extras = idle = 0
    for index, layer in enumerate(spec.layers):
        mixers += _mixer(spec, text, family, layer)
        part_dense, part_experts, part_idle = _feed_forward(spec, text, family, layer.feed_forward)
        dense, experts, idle = dense + part_dense, experts + part_experts, idle + part_idle
        norms += layer_norms(spec, family, layer) * norm_width(spec.hidden, family)
        extras += layer_extras(spec, text, layer, index=index)
    embedding = spec.vocab * spec.hidden
    head = 0 if spec.tied_embeddings else embedding
    if _flag(text, family.head_bias):
        head += spec.vocab
    norms += norm_width(spec.hidden, family)
    extras += root_extras(spec, text)
    if family.positions is not None:
        extras += (spec.context_tokens + family.positions) * spec.hidden
    text_total = embedding + head + mixers + dense + experts + norms + extras
    return ParameterCount(
        embedding=embedding, head=head, mixers=mixers, dense=dense, experts=experts, norms=norms,
        extras=extras, vision=vision_parameters(spec), active=text_total - idle,
        lookups=lookup_tables(spec, text, positions=family.positions),
    )  # fmt: skip


def norm_width(width: int, family: Family) -> int:
    """Weights of one norm over ``width`` values."""
    return {"rms": width, "layer": 2 * width, "layer_no_bias": width, "none": 0}[family.norm]


def layer_norms(spec: ModelSpec, family: Family, layer: Layer) -> int:
    """Norms over the hidden width in one layer."""
    if spec.model_type in ("nemotron-nas", "deci"):
        return (layer.attention is not None) + (layer.feed_forward is not None)
    if spec.model_type == "falcon":
        return _falcon_norms(Fields(spec.config))
    if spec.model_type == "stablelm" and Fields(spec.config).flag("use_parallel_residual"):
        return 1
    return family.norms_per_layer


def _falcon_norms(text: Fields) -> int:
    if text.flag("new_decoder_architecture"):
        return text.count("num_ln_in_parallel_attn", default=2)
    return 1 if text.flag("parallel_attn", default=True) else 2


def _flag(text: Fields, value: bool | str) -> bool:
    """A fixed fact of the family, or the config field that decides."""
    if not isinstance(value, str):
        return value
    return text.flag(value, default=value in _TRUE_BY_DEFAULT)


_TRUE_BY_DEFAULT = frozenset({"enable_bias", "use_bias"})


def _mixer(spec: ModelSpec, text: Fields, family: Family, layer: Layer) -> int:
    total = 0
    if layer.attention is not None:
        if layer.attention.latent is not None:
            total += _latent(spec, text, family, layer.attention, layer.attention.latent)
        else:
            total += _attention(spec, text, family, layer.attention)
    if layer.state is not None:
        total += _state(spec, text, layer.state)
    return total


def _attention(spec: ModelSpec, text: Fields, family: Family, part: Attention) -> int:
    queries = part.query_heads * part.head_dim_k
    keys, values = part.kv_heads * part.head_dim_k, part.kv_heads * part.head_dim_v
    outputs = part.query_heads * part.head_dim_v
    k_eq_v = text.flag("attention_k_eq_v") and part.kind == "full"
    if part.shares_kv:
        keys = values = 0
    stored = keys if k_eq_v else keys + values
    gate = queries if family.query_gate else 0
    total = spec.hidden * (queries + gate + stored + outputs)
    if _flag(text, family.qkv_bias):
        total += queries + gate + stored
    if _flag(text, family.o_bias):
        total += spec.hidden
    if family.sinks and (spec.model_type == "gpt_oss" or _has_sink(text, part)):
        total += part.query_heads
    return total + _qk_norm(text, family, part, queries, keys)


def _has_sink(text: Fields, part: Attention) -> bool:
    field = f"add_{'swa' if part.kind == 'sliding' else 'full'}_attention_sink_bias"
    return text.flag(field, default=part.kind == "sliding")


def _qk_norm(text: Fields, family: Family, part: Attention, queries: int, keys: int) -> int:
    rule = family.qk_norm
    if rule == "use_qk_norm":
        rule = "head" if text.flag("use_qk_norm") else ""
    if rule == "full":
        return queries + keys
    if rule in ("head", "head_bias"):
        wide = part.head_dim_k * (1 if part.shares_kv else 2)
        return wide * (2 if rule == "head_bias" else 1)
    return 0


def _latent(spec: ModelSpec, text: Fields, family: Family, part: Attention, mla: Latent) -> int:
    queries = part.query_heads * part.head_dim_k
    bias = _flag(text, family.qkv_bias)
    if mla.q_rank is None:
        total = spec.hidden * queries
    else:
        total = spec.hidden * mla.q_rank + mla.q_rank + mla.q_rank * queries
        total += mla.q_rank if bias else 0
    total += spec.hidden * mla.cached_dim + mla.kv_rank
    total += mla.kv_rank * part.query_heads * (mla.nope_dim + mla.v_dim)
    total += part.query_heads * mla.v_dim * spec.hidden
    total += mla.cached_dim + spec.hidden if bias else 0
    if part.indexer is not None:
        width = part.indexer.heads * part.indexer.head_dim
        total += (mla.q_rank or spec.hidden) * width + spec.hidden * part.indexer.head_dim
        total += 2 * part.indexer.head_dim + spec.hidden * part.indexer.heads
    return total


def _state(spec: ModelSpec, text: Fields, part: State) -> int:
    hidden, inner = spec.hidden, part.heads * part.head_dim
    if part.kind == "gated_delta":
        channels = 2 * part.groups * part.state_dim + inner
        projections = hidden * (channels + inner + 2 * part.heads) + inner * hidden
        return projections + channels * part.conv_kernel + 2 * part.heads + part.head_dim
    if part.kind == "kimi_delta":
        low_rank = 2 * (hidden * part.head_dim + part.head_dim * inner)
        projections = 3 * hidden * inner + inner * hidden + hidden * part.heads
        scalars = inner + part.heads + part.head_dim
        return projections + low_rank + 3 * inner * part.conv_kernel + scalars
    if part.kind == "lightning":
        return hidden * 3 * inner + 2 * inner * hidden + inner
    if part.kind == "short_conv":
        bias = 5 * hidden if text.flag("conv_bias") else 0
        return 4 * hidden * hidden + hidden * part.conv_kernel + bias
    return _mamba1(spec, text, part) if part.kind == "mamba1" else _mamba2(spec, text, part)


def _mamba1(spec: ModelSpec, text: Fields, part: State) -> int:
    inner, hidden = part.heads, spec.hidden
    rank_value = text.get("time_step_rank", "mamba_dt_rank")
    rank = -(-hidden // 16) if rank_value in (None, "auto") else int(rank_value)
    conv_bias = text.flag("use_conv_bias", default=text.flag("mamba_conv_bias", default=True))
    bias = text.flag("use_bias", default=text.flag("mamba_proj_bias"))
    total = hidden * 2 * inner + inner * hidden + (2 * inner + hidden if bias else 0)
    total += inner * part.conv_kernel + (inner if conv_bias else 0)
    total += inner * (rank + 2 * part.state_dim) + rank * inner + inner
    total += inner * part.state_dim + inner
    norms = rank + 2 * part.state_dim if spec.model_type == "jamba" else 0
    return total + norms


def _mamba2(spec: ModelSpec, text: Fields, part: State) -> int:
    inner, hidden = part.heads * part.head_dim, spec.hidden
    channels = inner + 2 * part.groups * part.state_dim
    conv_bias = text.flag("use_conv_bias", default=text.flag("mamba_conv_bias", default=True))
    bias = text.flag("mamba_proj_bias", default=text.flag("use_bias"))
    projected = inner + channels + part.heads
    total = hidden * projected + inner * hidden + (projected + hidden if bias else 0)
    total += channels * part.conv_kernel + (channels if conv_bias else 0) + 3 * part.heads
    gated_norm = spec.model_type != "falcon_h1" or text.flag("mamba_rms_norm")
    return total + (inner if gated_norm else 0)


def _feed_forward(
    spec: ModelSpec, text: Fields, family: Family, part: FeedForward | None
) -> tuple[int, int, int]:
    """(dense and router, routed experts, idle for one token) parameters of one layer."""
    if part is None:
        return 0, 0, 0
    if not part.experts:
        return _matrices(spec.hidden, part.width, part.matrices, _flag(text, family.mlp_bias)), 0, 0
    one = _matrices(spec.hidden, part.width, part.matrices, family.expert_bias)
    latent = text.count("moe_latent_size", default=0, zero=True)
    if latent:  # experts work in a narrower space, with one projection in and one out
        one = _matrices(latent, part.width, part.matrices, family.expert_bias)
    router = spec.hidden * part.experts + (part.experts if family.expert_bias else 0)
    router += 2 * spec.hidden * latent
    shared = _matrices(spec.hidden, part.shared_width, part.matrices, False)
    if part.shared_width and _flag(text, family.mlp_bias):
        shared += part.shared_width * (part.matrices - 1) + spec.hidden
    gate = spec.hidden if family.shared_gate and part.shared_width else 0
    correction = part.experts if family.correction_bias else 0
    parallel = _matrices(spec.hidden, part.parallel_width, part.matrices, False)
    dense = router + shared + gate + correction + parallel
    return dense, one * part.experts, one * (part.experts - part.active_experts)


def _matrices(hidden: int, width: int, matrices: int, bias: bool) -> int:
    weights = matrices * hidden * width
    return weights + (width * (matrices - 1) + hidden if bias and width else 0)
