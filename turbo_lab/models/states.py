"""Layers with a state of fixed size: Mamba, gated delta, Kimi delta, lightning, convolution."""

from __future__ import annotations

from typing import Literal

from turbo_lab.core.errors import ConfigError, UsageError
from turbo_lab.models import fields as names
from turbo_lab.models.dtypes import canonical_dtype
from turbo_lab.models.fields import Fields
from turbo_lab.models.layers import State

# Families whose engine default for the recurrent state is fp32 when the config is silent.
_FP32_BY_DEFAULT = ("nemotron_h", "kimi_linear")


def build_state(text: Fields, *, model_type: str) -> State:
    """The state of one layer of this family. Raises ConfigError for a family without one."""
    declared = text.get("mamba_ssm_dtype", "mamba_ssm_cache_dtype", "ssm_dtype")
    if declared is None and model_type in _FP32_BY_DEFAULT:
        declared = "float32"
    dtype = None if declared is None else canonical_dtype(declared, field="mamba_ssm_dtype")
    for test, build in _BUILDERS:
        if test(text, model_type):
            kind, heads, dim, groups, state, kernel = build(text)
            return State(kind, heads, dim, groups, state, kernel, dtype)  # type: ignore[arg-type]
    raise ConfigError(
        f"{text.where}layer_types names a layer with a fixed state, but model_type {model_type!r} "
        "has none that is known here."
    )


_Row = tuple[str, int, int, int, int, int]


def _gated_delta(text: Fields) -> _Row:
    return (
        "gated_delta",
        text.count("linear_num_value_heads"),
        text.count("linear_value_head_dim"),
        text.count("linear_num_key_heads"),
        text.count("linear_key_head_dim"),
        text.count("linear_conv_kernel_dim"),
    )


def _kimi_delta(text: Fields) -> _Row:
    if not text.has("linear_attn_config"):
        heads, dim = text.count("linear_num_heads"), text.count("linear_head_dim")
        return "kimi_delta", heads, dim, heads, dim, text.count("linear_conv_kernel_dim")
    linear = text.child("linear_attn_config")
    heads, dim = linear.count("num_heads"), linear.count("head_dim")
    return "kimi_delta", heads, dim, heads, dim, linear.count("short_conv_kernel_size")


def _nemotron(text: Fields) -> _Row:
    return (
        "mamba2",
        text.count("mamba_num_heads"),
        text.count("mamba_head_dim"),
        text.count("n_groups", "mamba_n_groups"),
        text.count("ssm_state_size", "mamba_state_dim"),
        text.count("conv_kernel", "mamba_d_conv"),
    )


def _bamba(text: Fields) -> _Row:
    heads = text.count("mamba_n_heads")
    inner = text.count(
        "mamba_d_ssm",
        default=text.count("mamba_expand", default=2) * text.count(*names.HIDDEN),
    )
    dim = text.get("mamba_d_head")
    if dim in (None, "auto"):
        dim = inner // heads
    if dim * heads != inner:
        raise ConfigError(
            f"{text.where}mamba_d_head {dim} * mamba_n_heads {heads} is not the inner "
            f"width {inner}."
        )
    return (
        "mamba2", heads, int(dim), text.count("mamba_n_groups"), text.count("mamba_d_state"),
        text.count("mamba_d_conv"),
    )  # fmt: skip


def _mamba2(text: Fields) -> _Row:
    return (
        "mamba2", text.count("num_heads"), text.count("head_dim"), text.count("n_groups"),
        text.count("state_size"), text.count("conv_kernel"),
    )  # fmt: skip


def _mamba1(text: Fields) -> _Row:
    expand = text.count("expand", "mamba_expand", default=2)
    inner = text.count("intermediate_size", default=expand * text.count(*names.HIDDEN))
    if text.has("mamba_d_state"):  # Jamba: intermediate_size is the MLP's there
        inner = expand * text.count(*names.HIDDEN)
    return (
        "mamba1", inner, 1, 0, text.count("state_size", "mamba_d_state"),
        text.count("conv_kernel", "mamba_d_conv"),
    )  # fmt: skip


def _lightning(text: Fields) -> _Row:
    heads = text.count(*names.HEADS)
    dim = text.count("head_dim", default=text.count(*names.HIDDEN) // heads)
    return "lightning", heads, dim, heads, dim, 1


def _short_conv(text: Fields) -> _Row:
    return "short_conv", text.count(*names.HIDDEN), 1, 0, 1, text.count("conv_L_cache")


_BUILDERS = (
    (lambda text, kind: text.has("linear_num_value_heads"), _gated_delta),
    (lambda text, kind: kind == "kimi_linear", _kimi_delta),
    (lambda text, kind: kind == "nemotron_h", _nemotron),
    (lambda text, kind: text.has("mamba_n_heads"), _bamba),
    (lambda text, kind: kind == "mamba2", _mamba2),
    (lambda text, kind: kind in ("mamba", "falcon_mamba", "jamba"), _mamba1),
    (lambda text, kind: kind in ("minimax", "minimax_text_01"), _lightning),
    (lambda text, kind: text.has("conv_L_cache"), _short_conv),
)


def state_elements(
    state: State, *, tensor_parallel: int = 1, speculative_tokens: int = 0
) -> tuple[int, int]:
    """Elements of the (convolution, recurrent) parts of one layer's state on one rank.

    Convolution: ``channels / tp * (kernel - 1 + speculative_tokens)``, where the channels of
    Mamba-2 are ``inner + 2 * groups * state_dim`` and those of the delta rules
    ``2 * key_heads * key_dim + value_heads * value_dim``. Recurrent:
    ``heads / tp * head_dim * state_dim``. Source: vLLM's ``MambaStateShapeCalculator``.
    """
    tp = tensor_parallel
    if state.heads % tp:
        raise UsageError(
            f"tensor_parallel is {tp}, which does not divide the {state.heads} heads (channels) "
            "of the state layers."
        )
    past = state.conv_kernel - 1
    if state.kind == "mamba1":
        return state.heads // tp * past, state.heads // tp * state.state_dim
    if state.kind == "short_conv":
        return state.heads // tp * (past + speculative_tokens), 0
    recurrent = state.heads // tp * state.head_dim * state.state_dim
    if state.kind == "lightning":
        return 0, recurrent
    groups = state.groups
    if state.kind == "mamba2" and groups % tp:
        groups = tp  # groups are replicated so that each rank has the ones its heads need
    channels = state.heads * state.head_dim + 2 * groups * state.state_dim
    return channels // tp * (past + speculative_tokens), recurrent


def state_bytes(
    state: State,
    *,
    model_dtype: Literal["bf16", "fp16", "fp32"] = "bf16",
    undeclared_dtype: Literal["bf16", "fp16", "fp32"] | None = None,
    tensor_parallel: int = 1,
    speculative_tokens: int = 0,
) -> int:
    """Bytes of one layer's state for one request on one rank.

    The convolution part is kept in the model's dtype, the recurrent one in the dtype that
    config.json declares; ``undeclared_dtype`` is for configs that declare none (fp32 by default,
    as the reference implementations of delta rules keep it, and the model's dtype for the rest).
    """
    width = {"bf16": 2, "fp16": 2, "fp32": 4}
    conv, recurrent = state_elements(
        state, tensor_parallel=tensor_parallel, speculative_tokens=speculative_tokens
    )
    delta = state.kind in ("gated_delta", "kimi_delta")
    fallback = undeclared_dtype or ("fp32" if delta else model_dtype)
    return conv * width[model_dtype] + recurrent * width[state.state_dtype or fallback]
