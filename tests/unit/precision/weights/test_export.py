"""Checkpoints: the library reads back what we computed, and bytes are the predicted ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.local_model import tensor_bytes
from turbo_lab.models.spec import from_hf_config
from turbo_lab.models.weights import weight_bytes
from turbo_lab.numerics.quantized import dequantize, quantize
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.export import (
    export_checkpoint,
    layer_tensors,
    quantization_config,
)
from turbo_lab.precision.weights.recipe import Recipe, quantized_copy

GROUP = Scheme("int4", "group", group_size=32, scale_dtype="bf16")
SCHEMES = [GROUP, Scheme("int4", "group", group_size=32, zero="code", scale_dtype="bf16"),
           Scheme("int4", "channel", scale_dtype="bf16")]  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.label)
def test_compressed_tensors_reads_our_layers(scheme: Scheme) -> None:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    library = pytest.importorskip("compressed_tensors.quantization")
    packed = pytest.importorskip("compressed_tensors.compressors.pack_quantized.base")
    stored = quantize(np.random.default_rng(0).standard_normal((64, 96)), scheme)
    group = library.QuantizationScheme(targets=["Linear"], weights=library.QuantizationArgs(
        num_bits=4, symmetric=scheme.symmetric, strategy=scheme.granularity,
        group_size=scheme.group_size))  # fmt: skip
    read = packed.PackedQuantizationCompressor.decompress(layer_tensors(stored), group)["weight"]
    ours = torch.from_numpy(np.ascontiguousarray(dequantize(stored)))
    assert torch.equal(read, ours.to(torch.bfloat16))


def source_folder(tiny: Any, folder: Path) -> Path:
    tiny.config.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.mark.parametrize(("scheme", "extra_bytes"), [
    (Scheme("int8", "channel"), 0), (GROUP, 16), (SCHEMES[1], 16),
])  # fmt: skip
def test_file_is_as_large_as_predicted(
    tiny: Any, tmp_path: Path, scheme: Scheme, extra_bytes: int
) -> None:
    """Besides the counted bytes, the format keeps each layer's shape as two 64-bit numbers."""
    made = quantized_copy(tiny, Recipe("x", scheme))
    source = source_folder(tiny, tmp_path / "source")
    folder = export_checkpoint(made, tmp_path / "out", source=source)
    assert tensor_bytes(str(folder)) == made.bytes + extra_bytes * len(made.stored)
    assert (folder / "tokenizer.json").exists()
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    known = weight_bytes(from_hf_config(config))  # what notebook 01 predicts from config.json
    assert known is not None and known.plain + known.packed + known.scales == made.bytes
    with pytest.raises(UsageError, match="exists; remove it"):
        export_checkpoint(made, folder, source=source)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "source"]  # nothing half-written


def test_skipped_layers_are_named_and_may_not_split_merged_ones(tiny: Any) -> None:
    made = quantized_copy(tiny, Recipe("x", GROUP, skip=("*.down_proj",)))
    assert quantization_config(made)["ignore"][:2] == ["lm_head", "model.layers.0.mlp.down_proj"]
    split = quantized_copy(tiny, Recipe("x", GROUP, skip=("*.v_proj",)))
    with pytest.raises(UsageError, match=r"skip leaves .*v_proj in 16 bits but not .*q_proj"):
        quantization_config(split)


@pytest.mark.parametrize(("scheme", "text"), [
    (Scheme("nf4", "group", group_size=32), "a checkpoint takes int8 per channel"),
    (Scheme("int4", "group", group_size=32, zero="value", scale_dtype="bf16"), "a checkpoint"),
    (Scheme("int4", "group", group_size=32), "keeps scales in the model's dtype"),
    (Scheme("int8", "channel", scale_dtype="bf16"), "symmetric weights with fp32 scales"),
])  # fmt: skip
def test_schemes_without_a_place_in_the_format(tiny: Any, scheme: Scheme, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        quantization_config(quantized_copy(tiny, Recipe("x", scheme)))
