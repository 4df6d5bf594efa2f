"""A draft model that was never trained: the target's embedding sizes and one layer of noise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from turbo_lab.core.errors import MissingDependencyError, UnmeasuredError
from turbo_lab.core.units import GiB
from turbo_lab.engines import local_model

KEPT = ("model.layers.0.", "model.embed_tokens.", "model.norm.", "lm_head.")
# Standard deviations. A layer as weak as usual before training would hand its input on, and where
# input and output share their embeddings such a draft repeats the last token: no bad guess at all.
SPREAD, LAYER_SPREAD = 0.02, 0.1
TOKENIZER = ("tokenizer*", "*.jinja", "generation_config.json", "special_tokens_map.json",
             "vocab.json", "merges.txt")  # fmt: skip
PER_LAYER = "layer_types"  # a list of the config with one entry per layer


def write_untrained_draft(target: str, folder: Path, *, seed: int = 0) -> Path:
    """Write a folder that vLLM loads as a draft of ``target``; made once, then reused.

    Same vocabulary, same shapes, one layer, random weights: its guesses are hardly ever right.
    Raises UnmeasuredError where the target's files are not here or the draft would be over 1 GiB.
    """
    if (folder / "model.safetensors").is_file():
        return folder
    source = local_model.snapshot_folder(target)
    shapes = _shapes(source)
    size = sum(4 * int(np.prod(shape)) for shape in shapes.values())
    if not shapes or size > GiB:
        raise UnmeasuredError(
            f"no untrained draft is made for {source.name}: it would take {size / GiB:.1f} GiB"
        )
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    config |= {"num_hidden_layers": 1, "max_window_layers": 1}
    if PER_LAYER in config:
        config[PER_LAYER] = config[PER_LAYER][:1]
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    for pattern in TOKENIZER:
        for path in source.glob(pattern):
            shutil.copy(path, folder / path.name)
    _write_weights(folder / "model.safetensors", shapes, seed=seed)
    return folder


def _shapes(source: Path) -> dict[str, list[int]]:
    """Shapes of the tensors that a model of one layer has, from the headers alone."""
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise MissingDependencyError("safetensors", needed_for="the untrained draft") from error
    found = {}
    for path in sorted(source.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (the file has no other iterator)
                if name.startswith(KEPT):
                    found[name] = file.get_slice(name).get_shape()
    return found


def _write_weights(path: Path, shapes: dict[str, list[int]], *, seed: int) -> None:
    from safetensors.numpy import save_file

    rng = np.random.default_rng(seed)
    tensors = {
        name: np.ones(shape, np.float32)
        if name.endswith("norm.weight")
        else (LAYER_SPREAD if ".layers." in name else SPREAD)
        * rng.standard_normal(shape, np.float32)
        for name, shape in shapes.items()
    }
    partial = path.with_suffix(".part")
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(path)
