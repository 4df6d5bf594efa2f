"""Bytes that one cached token takes in each number format a KV cache can have."""

from __future__ import annotations

from typing import Literal, get_args

from turbo_lab.core.errors import UsageError, did_you_mean

Dtype = Literal[
    "bf16", "fp16", "fp32", "fp8", "fp8_e4m3", "fp8_e5m2", "int8",
    "fp8_ds_mla", "nvfp4_ds_mla", "nvfp4",
    "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head",
]  # fmt: skip

_ALIASES = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32",
    "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2",
    "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32",
}  # fmt: skip
_ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
# One opaque record per token: 512 latent values, 64 rope values in bf16, scales.
_PACKED_MLA_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
_SCALE_BYTES = 4


def canonical_dtype(name: str, *, field: str = "dtype") -> Dtype:
    """The project's short name of a number format (``bfloat16`` becomes ``bf16``).

    Raises UsageError that names ``field`` when the format is not known.
    """
    short = _ALIASES.get(str(name).lower(), str(name).lower())
    if short not in get_args(Dtype):
        raise UsageError(f"{field} is {name!r}.{did_you_mean(str(name), list(get_args(Dtype)))}")
    return short  # type: ignore[return-value]


def element_bytes(dtype: Dtype) -> int:
    """Bytes of one plain element. The packed formats have none: UsageError."""
    if dtype in _PACKED_MLA_BYTES or dtype == "nvfp4" or dtype.endswith("_per_token_head"):
        raise UsageError(f"dtype {dtype!r} packs several values and has no bytes per element.")
    return _ELEMENT_BYTES.get(dtype, 1)


def head_bytes(head_dim_k: int, head_dim_v: int, *, dtype: Dtype) -> int:
    """Bytes that one KV head of one layer keeps for one token, scales included.

    Formula: ``(head_dim_k + head_dim_v) * element``; per-token-head formats add one fp32 scale
    for K and one for V; nvfp4 adds one fp8 scale per 16 values. Source: the page layouts that
    vLLM 0.32's attention backends publish (``customize_spec``).
    """
    if dtype in _PACKED_MLA_BYTES:
        raise UsageError(f"kv dtype {dtype!r} exists for MLA layers only, and this layer is not.")
    if dtype.endswith("_per_token_head"):
        divisor = 2 if dtype.startswith("int4") else 1
        return head_dim_k // divisor + head_dim_v // divisor + 2 * _SCALE_BYTES
    if dtype == "nvfp4":
        if head_dim_k != head_dim_v:
            raise UsageError("kv dtype 'nvfp4' needs K and V heads of one size; here "
                             f"K has {head_dim_k} and V has {head_dim_v}.")  # fmt: skip
        return 2 * (head_dim_k // 2 + head_dim_k // 16)
    return (head_dim_k + head_dim_v) * element_bytes(dtype)


def latent_bytes(latent_dim: int, *, dtype: Dtype) -> int:
    """Bytes that one MLA layer keeps for one token: one latent vector, no separate V.

    ``latent_dim`` is ``kv_lora_rank + qk_rope_head_dim``.
    """
    if dtype in _PACKED_MLA_BYTES:
        return _PACKED_MLA_BYTES[dtype]
    if dtype == "nvfp4":
        raise UsageError("kv dtype 'nvfp4' does not exist for MLA layers; 'nvfp4_ds_mla' does.")
    if dtype.endswith("_per_token_head"):
        divisor = 2 if dtype.startswith("int4") else 1
        return latent_dim // divisor + 2 * _SCALE_BYTES
    return latent_dim * element_bytes(dtype)
