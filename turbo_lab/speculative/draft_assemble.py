"""Put the packed layers and the teacher's embeddings together: a folder that every engine loads."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import (
    MissingDependencyError,
    RecordError,
    UsageError,
)
from turbo_lab.engines import local_model
from turbo_lab.records.digest import file_sha256
from turbo_lab.speculative.draft_pack import (
    EMBEDDINGS,
    PackedDraft,
    embeddings_sha256,
    open_pack,
    read_tensors,
)

MARKER = "turbo-lab-draft.json"
MODEL = "model.safetensors"
_TOKENIZER = ("tokenizer*", "*.jinja", "generation_config.json", "special_tokens_map.json",
              "vocab.json", "merges.txt")  # fmt: skip


def draft_folder(packed: PackedDraft) -> Path:
    """Where the assembled draft lies, or will lie: one folder for each file of weights."""
    name = f"{packed.recipe['teacher']['name']}-draft-{packed.digest[7:19]}"
    return host.cache_folder() / "models" / name


def assemble_draft(
    source: str | Path | None = None,
    *,
    teacher: str | Path | None = None,
    target: Path | None = None,
    report: Callable[[str], None] = print,
) -> Path:
    """The folder of the draft in Hugging Face format, made once and then reused (about 1 s).

    Args:
        source: folder with the packed draft; default: the shipped ``data/draft``.
        teacher: folder of the model it was distilled from; default: the bundled one.
        target: where to write; default: the project's cache.
        report: told when something is written.

    Raises:
        UsageError: the teacher is another model than the draft's own.
        RecordError: the packed files are missing or changed.
        EngineError: the folder cannot be written.
    """
    packed = open_pack(source)
    base = Path(teacher) if teacher is not None else Path(local_model.resolve_model(report=report))
    folder = target or draft_folder(packed)
    if is_assembled(folder, packed):
        return folder
    _check_teacher(packed, base)
    doing = f"write the draft to {folder}"
    with local_model.writing_alone(folder.parent, name=folder.name, doing=doing, room="100 MB"):
        if not is_assembled(folder, packed):
            _write(packed, base, folder)
            report(f"Draft ready: {host.short_path(folder)}")
    return folder


def is_assembled(folder: Path, packed: PackedDraft) -> bool:
    """True when the folder holds this draft, every file with the digest in its marker."""
    try:
        marker = json.loads((folder / MARKER).read_text())
        return marker["weights"] == packed.digest and all(
            file_sha256(folder / name) == digest for name, digest in marker["files"].items()
        )
    except (OSError, ValueError, KeyError, RecordError):
        return False


def _check_teacher(packed: PackedDraft, teacher: Path) -> None:
    if not (teacher / MODEL).is_file():
        raise UsageError(f"{teacher} has no {MODEL}; give the folder of the draft's teacher")
    own, found = packed.recipe["teacher"]["embeddings_sha256"], embeddings_sha256(teacher)
    if own != found:
        raise UsageError(
            f"this draft belongs to {packed.recipe['teacher']['name']} with embeddings "
            f"{own[:19]}..., and {teacher.name} has {found[:19]}... Draft and target must share "
            "them. Use that model, or distil a draft of this one: "
            "python -m turbo_lab.speculative build"
        )


def _write(packed: PackedDraft, teacher: Path, folder: Path) -> None:
    """Write a hidden folder, then rename it: what exists under the final name is whole."""
    try:
        from safetensors import safe_open
        from safetensors.torch import save_file
    except ImportError as error:
        raise MissingDependencyError("safetensors", needed_for="assembling the draft") from error
    partial = folder.parent / f".{folder.name}.{os.getpid()}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        with safe_open(teacher / MODEL, framework="pt") as weights:
            shared = {EMBEDDINGS: weights.get_tensor(EMBEDDINGS)}
        save_file({**shared, **read_tensors(packed)}, partial / MODEL, {"format": "pt"})
        config = draft_config(packed, json.loads((teacher / "config.json").read_text()))
        (partial / "config.json").write_text(json.dumps(config, indent=1))
        for pattern in _TOKENIZER:
            for path in teacher.glob(pattern):
                _link(path, partial / path.name)
        files = {p.name: file_sha256(p) for p in sorted(partial.iterdir())}
        marker = {"weights": packed.digest, "files": files}
        (partial / MARKER).write_text(json.dumps(marker, indent=1))
        if folder.exists():  # damaged, else it would have been used
            shutil.rmtree(folder)
        partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def draft_config(packed: PackedDraft, teacher: dict[str, Any]) -> dict[str, Any]:
    """The teacher's config.json with the draft's number of layers."""
    layers = packed.recipe["recipe"]["train"]["layers"]
    config = {**teacher, "num_hidden_layers": len(layers), "tie_word_embeddings": True}
    config.pop("_name_or_path", None)
    return config


def _link(source: Path, target: Path) -> None:
    """A hard link costs nothing; another disk needs a copy."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copy2(source, target)
