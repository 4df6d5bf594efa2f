"""Weights of a Llama-like model, read slice by slice: a rank reads only what it keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import MissingDependencyError, UsageError
from turbo_lab.models.catalog import read_config
from turbo_lab.models.spec import ModelSpec, from_hf_config

MODEL_TYPES = ("llama", "qwen3")


@dataclass(frozen=True)
class Weights:
    """A model's spec and its tensors by name. A tensor is read when it is sliced."""

    spec: ModelSpec
    tensors: Mapping[str, Any]
    eps: float
    rope_theta: float
    device: str = "cpu"
    dtype: str = "float32"

    def read(self, name: str, *, rows: range | None = None, columns: range | None = None) -> Any:
        """The tensor, or its rows and columns (dimensions 0 and 1), as a new contiguous one.

        Raises UsageError when the model has no tensor of that name.
        """
        import torch

        if name not in self.tensors:
            raise UsageError(f"{self.spec.name} has no tensor {name!r}")
        source = self.tensors[name]
        cut = [slice(r.start, r.stop) if r is not None else slice(None) for r in (rows, columns)]
        piece = source[tuple(cut)] if columns is not None else source[cut[0]]
        target = getattr(torch, self.dtype)
        return piece.to(device=self.device, dtype=target, copy=True).contiguous()

    def first_layers(self, count: int) -> Weights:
        """The same model cut after ``count`` layers: for quick checks, not for good text."""
        if not 1 <= count <= len(self.spec.layers):
            raise UsageError(f"layers is {count}; allowed: 1 to {len(self.spec.layers)}")
        return replace(self, spec=replace(self.spec, layers=self.spec.layers[:count]))

    def layer(self, index: int, part: str) -> str:
        """Name of a tensor of one layer, e.g. ``layer(0, "mlp.up_proj")``."""
        return f"model.layers.{index}.{part}.weight"


def weights_from(config: Mapping[str, Any], tensors: Mapping[str, Any], **options: Any) -> Weights:
    """Weights of a config.json and a mapping from name to tensor.

    Raises UsageError for a model that the lesson's own forward pass does not compute.
    """
    spec = from_hf_config(config, name=options.pop("name", "model"))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    biased = config.get("attention_bias") or config.get("mlp_bias")
    if spec.model_type not in MODEL_TYPES or kind != "default" or biased:
        raise UsageError(
            f"{spec.name} is of type {spec.model_type} (rotary {kind}, bias {bool(biased)}); the "
            f"parallel lessons compute {', '.join(MODEL_TYPES)} without bias and rotary scaling."
        )
    if set(spec.attention_kinds) != {"full"}:
        raise UsageError(f"{spec.name} has {set(spec.attention_kinds)} attention; only full works.")
    theta = rope.get("rope_theta", config.get("rope_theta"))
    if theta is None:
        raise UsageError(f"{spec.name}: config.json names no rope_theta")
    return Weights(
        spec=spec, tensors=tensors, eps=config["rms_norm_eps"], rope_theta=theta, **options
    )


def open_weights(folder: Path | str) -> Weights:
    """Weights of a folder with config.json and safetensors; nothing is read yet."""
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise MissingDependencyError("safetensors", needed_for="reading weights") from error
    path = Path(folder)
    index = path / "model.safetensors.index.json"
    names = {"model.safetensors"}
    if index.is_file():
        names = set(json.loads(index.read_text())["weight_map"].values())
    tensors: dict[str, Any] = {}
    for name in sorted(names):
        file = safe_open(str(path / name), framework="pt")
        tensors.update({key: file.get_slice(key) for key in file.keys()})  # noqa: SIM118
    return weights_from(read_config(path), tensors, name=path.name)


def small_config(**changes: Any) -> dict[str, Any]:
    """A tiny Llama config for experiments: 4 query heads, 2 KV heads, 2 layers."""
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "intermediate_size": 48, "vocab_size": 96, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "dtype": "float32", "hidden_act": "silu", **changes,
    }  # fmt: skip


def random_weights(config: Mapping[str, Any], *, seed: int = 0) -> Weights:
    """Seeded random weights for a config; the same on every rank."""
    import torch

    spec = from_hf_config(config, name="random")
    rng = torch.Generator().manual_seed(seed)
    width = config["intermediate_size"]
    query, kv = spec.query_heads * spec.head_dim_k, spec.kv_heads * spec.head_dim_k
    shapes = {"model.embed_tokens.weight": (spec.vocab, spec.hidden)}
    if not spec.tied_embeddings:
        shapes["lm_head.weight"] = (spec.vocab, spec.hidden)
    for layer in range(len(spec.layers)):
        for part, shape in {
            "self_attn.q_proj": (query, spec.hidden), "self_attn.k_proj": (kv, spec.hidden),
            "self_attn.v_proj": (kv, spec.hidden), "self_attn.o_proj": (spec.hidden, query),
            "mlp.gate_proj": (width, spec.hidden), "mlp.up_proj": (width, spec.hidden),
            "mlp.down_proj": (spec.hidden, width),
        }.items():  # fmt: skip
            shapes[f"model.layers.{layer}.{part}.weight"] = shape
    tensors = {
        name: torch.randn(shape, generator=rng) / shape[1] ** 0.5 for name, shape in shapes.items()
    }
    norms = ["model.norm.weight"] + [
        f"model.layers.{layer}.{part}.weight"
        for layer in range(len(spec.layers))
        for part in ("input_layernorm", "post_attention_layernorm")
    ]
    tensors |= {name: 1 + 0.1 * torch.randn(spec.hidden, generator=rng) for name in norms}
    return weights_from(config, tensors, name="random")
