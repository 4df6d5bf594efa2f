"""The draft as one compact file: its own layers in bfloat16, without the shared embeddings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import MissingDependencyError, RecordError, UsageError
from turbo_lab.records.digest import file_sha256
from turbo_lab.records.store import write_text_atomically
from turbo_lab.speculative.draft_recipe import MAX_PACK_BYTES

FOLDER = "data/draft"
WEIGHTS = "draft.safetensors"
RECIPE = "recipe.json"
EMBEDDINGS = "model.embed_tokens.weight"
FIELDS = ("teacher", "recipe", "data", "training", "agreement", "minutes", "made_with", "weights")


@dataclass(frozen=True)
class PackedDraft:
    """A draft on disk. ``recipe``: what recipe.json tells about it."""

    folder: Path
    recipe: dict[str, Any]

    @property
    def weights(self) -> Path:
        """The file of weights."""
        return self.folder / WEIGHTS

    @property
    def digest(self) -> str:
        """``sha256:...`` of the weights, as the recipe names it."""
        return self.recipe["weights"]["sha256"]

    @property
    def share(self) -> float:
        """Measured held-out greedy agreement over all classes, 0 to 1."""
        return self.recipe["agreement"]["all"]["share"]


def shipped_folder() -> Path:
    """Where the project's own draft lies."""
    return host.repository_root() / FOLDER


def embeddings_sha256(model_folder: str | Path) -> str:
    """``sha256:...`` over the bytes of a model's token embeddings, which a draft shares.

    Only this tensor (and so the vocabulary) must be the teacher's own; file headers may differ.
    Raises RecordError when the folder has no such tensor.
    """
    import hashlib

    path = Path(model_folder) / "model.safetensors"
    try:
        with path.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            begin, end = json.loads(stream.read(size))[EMBEDDINGS]["data_offsets"]
            stream.seek(8 + size + begin)
            return "sha256:" + hashlib.sha256(stream.read(end - begin)).hexdigest()
    except (OSError, ValueError, KeyError) as error:
        raise RecordError(f"{path} has no readable {EMBEDDINGS}: {error!r}") from error


def write_pack(
    tensors: dict[str, Any],
    recipe: dict[str, Any],
    folder: Path,
    *,
    max_bytes: int = MAX_PACK_BYTES,
) -> PackedDraft:
    """Write weights (as bfloat16) and recipe.json; the recipe gets size and digest of the weights.

    Raises UsageError, before anything is replaced, when the file would exceed ``max_bytes``.
    """
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    partial, path = folder / f".{WEIGHTS}.partial", folder / WEIGHTS
    rounded = {name: t.detach().to(torch.bfloat16).contiguous() for name, t in tensors.items()}
    try:
        save_file(rounded, partial, {"format": "pt"})
        size = partial.stat().st_size
        if size > max_bytes:
            raise UsageError(
                f"the draft takes {size:,} bytes, at most {max_bytes:,} are allowed; "
                f"use fewer layers than {recipe['recipe']['train']['layers']}"
            )
        partial.chmod(0o644)
        partial.replace(path)
    except OSError as error:
        raise RecordError(f"{path} could not be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    parameters = sum(t.numel() for t in rounded.values())
    facts = {"file": WEIGHTS, "bytes": size, "parameters": parameters, "dtype": "bfloat16",
             "sha256": file_sha256(path)}  # fmt: skip
    whole = {**recipe, "weights": facts}
    text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
    write_text_atomically(text + "\n", folder / RECIPE)
    return PackedDraft(folder, whole)


def open_pack(folder: str | Path | None = None) -> PackedDraft:
    """A packed draft (default: the shipped one), with its weights checked against the recipe.

    Raises RecordError for a missing, cut-off or changed file, naming it.
    """
    home = Path(folder) if folder is not None else shipped_folder()
    path = home / RECIPE
    try:
        recipe = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(
            f"{path} cannot be read: {error}. Take it from the repository again, or build a draft: "
            "python -m turbo_lab.speculative build"
        ) from error
    if missing := [name for name in FIELDS if name not in recipe]:
        raise RecordError(f"{path} has no {', '.join(missing)}.")
    packed = PackedDraft(home, recipe)
    if (found := file_sha256(packed.weights)) != packed.digest:
        raise RecordError(
            f"{packed.weights} is not the file that {RECIPE} describes: {found[:19]}..., expected "
            f"{packed.digest[:19]}... Take both from the repository again."
        )
    return packed


def read_tensors(packed: PackedDraft) -> dict[str, Any]:
    """Name to tensor (bfloat16). Raises MissingDependencyError without torch and safetensors."""
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise MissingDependencyError("safetensors", needed_for="the draft's weights") from error
    return load_file(packed.weights)
