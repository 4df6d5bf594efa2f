"""Write quantised weights as a compressed-tensors checkpoint, which real vLLM loads.

compressed-tensors is the production library here: vLLM depends on it, so nothing is added to the
environment, and its format holds what this package computes, bit for bit. torchao and hqq bring
kernels of their own that vLLM does not use on a CPU; optimum-quanto has no path into vLLM.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from turbo_lab.core.errors import MissingDependencyError, UsageError
from turbo_lab.numerics.formats import number_format
from turbo_lab.numerics.pack import pack
from turbo_lab.numerics.quantized import Quantized
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.layers import linear_names
from turbo_lab.precision.weights.recipe import QuantizedModel

# vLLM merges these into one matrix, which then has one scheme.
_MERGED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_COPIED = ("tokenizer*", "*.jinja", "generation_config.json", "special_tokens_map.json",
           "vocab.json", "merges.txt")  # fmt: skip


def export_checkpoint(quantised: QuantizedModel, target: Path, *, source: str | Path) -> Path:
    """Write a folder that ``vllm serve`` loads; returns it.

    Int8 per output channel becomes W8A8: the engine also rounds activations to int8, one scale per
    token, which the simulated model does not. Int4 and int2, per channel or group, are weight-only
    (W4A16). ``source``: the folder whose config and tokenizer are taken over. The folder appears
    under its name only when it is whole.

    Raises:
        UsageError: a scheme the format or the engine has no place for, a skip list that splits
            matrices which the engine merges, or a target that exists.
        MissingDependencyError: without torch and safetensors.
    """
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise MissingDependencyError("safetensors", needed_for="exporting a checkpoint") from error
    config = quantization_config(quantised)
    if target.exists():
        raise UsageError(f"{target} exists; remove it or name another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    partial.mkdir()
    try:
        save_file(_tensors(quantised), partial / "model.safetensors", {"format": "pt"})
        _write_config(Path(source), partial, quantised, config)
        partial.replace(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def quantization_config(quantised: QuantizedModel) -> dict[str, Any]:
    """The ``quantization_config`` of config.json, in compressed-tensors' terms."""
    scheme = quantised.recipe.scheme
    _check_scheme(scheme)
    skipped = [n for n in linear_names(quantised.model) if n not in quantised.stored]
    _check_merged(quantised.stored, skipped)
    whole_bytes = scheme.format == "int8"
    weights: dict[str, Any] = {
        "num_bits": scheme.number.bits,
        "type": "int",
        "strategy": scheme.granularity,
        "symmetric": scheme.symmetric,
        "dynamic": False,
    }
    if scheme.group_size:
        weights["group_size"] = scheme.group_size
    per_token = {"num_bits": 8, "type": "int", "strategy": "token", "symmetric": True,
                 "dynamic": True}  # fmt: skip
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized" if whole_bytes else "pack-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head", *skipped],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights,
                "input_activations": per_token if whole_bytes else None,
            }
        },
    }


def layer_tensors(stored: Quantized) -> dict[str, Any]:
    """The tensors of one layer under the names of the format (``weight_packed`` and so on)."""
    import torch

    bits, (outputs, inputs) = stored.scheme.number.bits, stored.shape
    half = 1 << (bits - 1)
    if bits == 8:
        signed = (stored.codes.astype(np.int16) - half).astype(np.int8)
        return {"weight": torch.from_numpy(signed), "weight_scale": _scales(stored)}
    words = pack(stored.codes, bits=bits).view("<i4").reshape(outputs, inputs * bits // 32)
    out = {
        "weight_packed": torch.from_numpy(words),
        "weight_scale": _scales(stored),
        "weight_shape": torch.tensor(stored.shape, dtype=torch.int64),
    }
    if stored.zero_values is not None:  # packed along the outputs
        codes = (stored.zero_values + half).astype(np.uint8).T
        packed = pack(codes, bits=bits).view("<i4").reshape(len(codes), outputs * bits // 32)
        out["weight_zero_point"] = torch.from_numpy(np.ascontiguousarray(packed.T))
    return out


def _scales(stored: Quantized) -> Any:
    import torch

    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    values = torch.from_numpy(np.ascontiguousarray(stored.scale_values))
    return values.to(kinds[stored.scheme.scale_dtype])


def _tensors(quantised: QuantizedModel) -> dict[str, Any]:
    import torch

    plain = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    dtype = plain[quantised.recipe.plain_dtype]
    out = {
        name: parameter.detach().to(dtype).contiguous()
        for name, parameter in quantised.model.named_parameters()
        if name.removesuffix(".weight") not in quantised.stored
    }
    for name, stored in quantised.stored.items():
        out |= {f"{name}.{part}": tensor for part, tensor in layer_tensors(stored).items()}
    return out


def _write_config(
    source: Path, target: Path, quantised: QuantizedModel, quantization: dict[str, Any]
) -> None:
    config = json.loads((source / "config.json").read_text())
    names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    config.pop("torch_dtype", None)
    config["dtype"] = names[quantised.recipe.plain_dtype]
    config["quantization_config"] = quantization
    (target / "config.json").write_text(json.dumps(config, indent=2))
    for pattern in _COPIED:
        for path in source.glob(pattern):
            shutil.copy2(path, target / path.name)


def _check_scheme(scheme: Scheme) -> None:
    kinds = {"int8": ("channel",), "int4": ("channel", "group"), "int2": ("channel", "group")}
    allowed = kinds.get(scheme.format, ())
    if scheme.granularity not in allowed or scheme.axis != -1 or scheme.zero == "value":
        raise UsageError(
            f"scheme {scheme.label}: a checkpoint takes int8 per channel, or int4 and int2 per "
            "channel or group along the inputs, symmetric or with zero points of the code's width"
        )
    if scheme.format == "int8" and not (scheme.symmetric and scheme.scale_dtype == "fp32"):
        raise UsageError(f"scheme {scheme.label}: W8A8 takes symmetric weights with fp32 scales")
    if number_format(scheme.format).bits < 8 and scheme.scale_dtype == "fp32":
        raise UsageError(
            f"scheme {scheme.label}: the engine keeps scales in the model's dtype; "
            "use scale_dtype 'bf16' or 'fp16' like plain_dtype"
        )


def _check_merged(stored: Any, skipped: list[str]) -> None:
    for name in skipped:
        head, _, kind = name.rpartition(".")
        for merged in _MERGED:
            others = [f"{head}.{k}" for k in merged if kind in merged and f"{head}.{k}" in stored]
            if others:
                raise UsageError(
                    f"skip leaves {name} in 16 bits but not {', '.join(others)}; the engine merges "
                    "them into one matrix, so skip all or none of them"
                )
