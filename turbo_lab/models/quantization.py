"""How a quantised checkpoint stores its matrices, read from ``quantization_config``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


def _grouped(config: Fields, method: str, ignored: tuple[str, ...]) -> WeightFormat:
    bits = config.count("bits", "w_bit")
    group = config.get("group_size", "q_group_size")
    size = 0 if group in (None, -1) else int(group)
    return WeightFormat(f"{method}-int{bits}", bits, (1, size), 2, bits, ignored)


def _compressed(config: Fields, ignored: tuple[str, ...]) -> WeightFormat | None:
    groups: Any = config.get("config_groups") or {}
    weights = next((g.get("weights") for g in groups.values() if g.get("weights")), None)
    if weights is None:
        return None
    bits, strategy = int(weights["num_bits"]), weights.get("strategy")
    if strategy == "group":
        block = (1, int(weights["group_size"]))
    elif strategy == "block":
        shape = weights.get("block_structure") or [128, 128]
        block = (int(shape[0]), int(shape[1]))
    else:
        block = (1, 0) if strategy == "channel" else (0, 0)
    width = 2 if bits < 8 else _FP32_BYTES
    zero_bits = 0 if weights.get("symmetric", True) else bits  # packed like the weights
    name = f"{weights.get('type', 'int')}{bits} per {strategy}"
    return WeightFormat(name, bits, block, width, zero_bits, ignored)


def _modelopt(config: Fields, ignored: tuple[str, ...]) -> WeightFormat | None:
    algorithm = str(config.get("quant_algo") or "FP8").upper()
    if algorithm == "FP8":
        return WeightFormat("fp8 per tensor", 8, ignored=ignored)
    if algorithm == "NVFP4":
        return WeightFormat("nvfp4", 4, (1, 16), 1, ignored=ignored)
    return None
