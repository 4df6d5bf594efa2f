"""How a quantised checkpoint stores its matrices, read from ``quantization_config``."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Any

from turbo_lab.models.dtypes import Dtype
from turbo_lab.models.fields import Fields
from turbo_lab.models.matrices import Matrix
from turbo_lab.models.spec import ModelSpec

_FP32_BYTES = 4


@dataclass(frozen=True)
class WeightFormat:
    """A format of packed matrices. ``bits`` 0: nothing is packed.

    ``block``: (outputs, inputs) that share one scale; 0 stands for the whole side.
    ``scale_width``: bytes of one scale; ``zero_bits``: bits of a zero point beside it.
    """

    name: str
    bits: int = 0
    block: tuple[int, int] = (0, 0)
    scale_width: int = _FP32_BYTES
    zero_bits: int = 0
    ignored: tuple[str, ...] = ()
    experts_only: bool = False

    def scale_bytes(self, matrix: Matrix) -> int:
        """Bytes of scales and zero points of a matrix in all its copies."""
        rows = -(-matrix.outputs // (self.block[0] or matrix.outputs))
        columns = -(-matrix.inputs // (self.block[1] or matrix.inputs))
        bits = 8 * self.scale_width + self.zero_bits
        return rows * columns * matrix.copies * bits // 8

    def packs(self, matrix: Matrix, *, layer: int) -> bool:
        """True when this matrix of the layer with this index is stored in the format."""
        if not self.bits or (self.experts_only and "experts" not in matrix.name):
            return False
        name = f"model.layers.{layer}.{matrix.name}"
        return not any(_matches(pattern, name) for pattern in self.ignored)


def weight_format(spec: ModelSpec) -> WeightFormat | None:
    """The checkpoint's format; None when it is quantised in a way that has no rule here."""
    raw = spec.root_config.get("quantization_config") or spec.config.get("quantization_config")
    if not raw:
        return WeightFormat(spec.dtype)
    config = Fields(raw, "quantization_config.")
    method = str(config.get("quant_method", "quant_algo") or "").lower()
    ignored = tuple(
        str(item)
        for name in ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
        for item in config.items(name) or []
    )
    if method in ("fp8", "fbgemm_fp8"):
        block = config.items("weight_block_size") or [0, 0]
        channel = method == "fbgemm_fp8"
        return WeightFormat(
            method, 8, (1, 0) if channel else (int(block[0]), int(block[1])), ignored=ignored
        )
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return WeightFormat("mxfp4", 4, (1, 32), scale_width=1, ignored=ignored, experts_only=True)
    if method in ("gptq", "awq"):
        return _grouped(config, method, ignored)
    if method == "compressed-tensors":
        return _compressed(config, ignored)
    if method == "modelopt":
        return _modelopt(config, ignored)
    return None


def declared_kv_dtype(spec: ModelSpec) -> Dtype | None:
    """The cache format that a quantised checkpoint asks for; None where it says nothing.

    vLLM 0.32 follows it when ``--kv-cache-dtype`` is ``auto``: ModelOpt's ``kv_cache_scheme`` or
    ``kv_cache_quant_algo`` (fp8, nvfp4), and compressed-tensors' ``kv_cache_scheme`` (fp8, but for
    MLA). Source: ``get_kv_cache_quant_algo_string`` and ``Attention``.
    """
    raw = spec.root_config.get("quantization_config") or spec.config.get("quantization_config")
    if not raw:
        return None
    method = str(raw.get("quant_method") or "").lower()
    if method == "compressed-tensors":
        latent = any(layer.latent for layer in spec.attention_layers)
        return "fp8" if raw.get("kv_cache_scheme") and not latent else None
    if not method.startswith("modelopt"):
        return None
    parts = (raw.get("quantization") or raw, raw)
    for name in ("kv_cache_scheme", "kv_cache_quant_algo"):
        for part in parts:
            if part.get(name):
                return _modelopt_kv(part[name])
    return None


def _modelopt_kv(scheme: Any) -> Dtype | None:
    if isinstance(scheme, str):
        known: dict[str, Dtype] = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
        return known.get(scheme.lower())
    if scheme.get("type") != "float":
        return None
    if scheme.get("num_bits") == 8 and scheme.get("dynamic") is False:
        return "fp8_e4m3"
    return "nvfp4" if scheme.get("num_bits") == 4 else None


def _grouped(config: Fields, method: str, ignored: tuple[str, ...]) -> WeightFormat:
    bits = config.count("bits", "w_bit")
    group = config.get("group_size", "q_group_size")
    size = 0 if group in (None, -1) else int(group)
    return WeightFormat(f"{method}-int{bits}", bits, (1, size), 2, bits, ignored)


def _compressed(config: Fields, ignored: tuple[str, ...]) -> WeightFormat | None:
    """One rule for all linear layers; several rules, or rules for some layers only, are unknown."""
    groups: list[Any] = [g for g in (config.get("config_groups") or {}).values()
                         if g.get("weights")]  # fmt: skip
    if not groups or any(g["weights"] != groups[0]["weights"] for g in groups):
        return None
    if any(set(g.get("targets") or ["Linear"]) != {"Linear"} for g in groups):
        return None
    weights = groups[0]["weights"]
    bits, strategy = int(weights["num_bits"]), weights.get("strategy")
    if strategy in ("group", "tensor_group"):
        block = (
            1,
            Fields(weights, "quantization_config.config_groups.weights.").count("group_size"),
        )
    elif strategy == "block":
        shape = weights.get("block_structure") or [128, 128]
        block = (int(shape[0]), int(shape[1]))
    else:
        block = (1, 0) if strategy == "channel" else (0, 0)
    packed = "pack-quantized" in (config.get("format"), groups[0].get("format"))
    width = _compressed_scale_bytes(weights, packed=packed or bits < 8)
    zero_bits = 0 if weights.get("symmetric", True) else bits  # packed like the weights
    name = f"{weights.get('type', 'int')}{bits} per {strategy}"
    return WeightFormat(name, bits, block, width, zero_bits, ignored)


def _compressed_scale_bytes(weights: Any, *, packed: bool) -> int:
    """Bytes of one scale: NVFP4 and the MX formats 1, packed integers the model's 2, others fp32.

    NVFP4 has an fp8 scale per 16 values, MXFP4 and MXFP8 an exponent per 32. NVFP4's one fp32
    number per matrix is left out. Source: the parameters of vLLM's ``CompressedTensors*`` schemes.
    """
    float_type, group = weights.get("type") == "float", weights.get("group_size")
    micro = weights.get("strategy") == "group" and group == 32 and float_type
    if micro or (float_type and int(weights["num_bits"]) == 4):
        return 1
    return 2 if packed else _FP32_BYTES


def _modelopt(config: Fields, ignored: tuple[str, ...]) -> WeightFormat | None:
    algorithm = str(config.get("quant_algo") or "FP8").upper()
    if algorithm == "FP8":
        return WeightFormat("fp8 per tensor", 8, ignored=ignored)
    if algorithm == "NVFP4":
        return WeightFormat("nvfp4", 4, (1, 16), 1, ignored=ignored)
    return None


def _matches(pattern: str, name: str) -> bool:
    """Whether an entry of an ignore list means this module: a regex, a glob, or a part of it."""
    if pattern.startswith("re:"):
        return re.match(pattern[3:], name) is not None
    if "*" in pattern:
        return fnmatch.fnmatch(name, pattern + "*")
    return f".{pattern.strip('.')}." in f".{name}."
