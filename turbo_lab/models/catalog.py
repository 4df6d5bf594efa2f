"""The project's own catalogue of models: facts with their source under ``data/models/``."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import ConfigError, UsageError, did_you_mean
from turbo_lab.models.spec import ModelSpec, from_hf_config

FOLDER = "data/models"


@dataclass(frozen=True)
class CatalogEntry:
    """One model. ``config``: the fields of its config.json that memory and work depend on.

    ``published``: numbers that others printed for it; ``trap``: what common formulas get wrong.
    """

    id: str
    aliases: tuple[str, ...]
    trap: str
    source: str
    published: Mapping[str, int]
    config: Mapping[str, Any]

    def spec(self) -> ModelSpec:
        """The model's specification."""
        return from_hf_config(self.config, name=self.id)


def catalog_ids() -> list[str]:
    """Ids of all models in the catalogue, sorted. Empty where ``data/`` is not installed."""
    return sorted(path.stem for path in _folder().glob("*.json"))


def load_model(model: str) -> CatalogEntry:
    """The entry with this id or alias (case is ignored).

    Raises UsageError with the closest names when there is none.
    """
    wanted = model.lower()
    direct = _folder() / f"{wanted}.json"
    if "/" not in wanted and direct.is_file():
        return _read(direct)
    for entry in all_models():
        if wanted in (alias.lower() for alias in entry.aliases):
            return entry
    raise UsageError(f"model is {model!r}, which is neither a file, a folder nor a known id. "
                     "Give the path of a config.json, or an id."
                     f"{did_you_mean(wanted, catalog_ids())}")  # fmt: skip


@functools.cache
def all_models() -> tuple[CatalogEntry, ...]:
    """Every entry, in the order of the ids."""
    return tuple(_read(path) for path in sorted(_folder().glob("*.json")))


def read_config(path: Path) -> dict[str, Any]:
    """A config.json, given itself or its folder. Raises ConfigError that names the file."""
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(
            f"{file} does not exist. Give a config.json, a folder that holds one, or a model id."
        )
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not JSON: {error}.") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{file} holds {type(config).__name__}; an object is needed.")
    return config


def find_model(text: str) -> ModelSpec:
    """A model from a path to config.json, a folder that holds one, or an id.

    An id is looked up in the catalogue, then among the models that Hugging Face tools have
    downloaded on this machine; nothing is fetched. Raises UsageError when it is in neither.
    """
    path = Path(text).expanduser()
    if path.exists() or text.endswith(".json") or text.startswith((".", "/", "~")):
        config = read_config(path)
        name = path.name if path.is_dir() else path.stem
        return from_hf_config(config, name=path.resolve().parent.name if name == "config" else name)
    if downloaded := _downloaded(text):
        return from_hf_config(read_config(downloaded), name=text)
    return load_model(text).spec()


def _downloaded(model: str) -> Path | None:
    """The newest config.json of a downloaded hub model, unless the catalogue has the id."""
    if "/" not in model or any(model in entry.aliases for entry in all_models()):
        return None
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    folder = home / "hub" / f"models--{model.replace('/', '--')}" / "snapshots"
    found = sorted(folder.glob("*/config.json"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def _folder() -> Path:
    return host.repository_root() / FOLDER


def _read(path: Path) -> CatalogEntry:
    raw = json.loads(path.read_text(encoding="utf-8"))
    return CatalogEntry(
        id=raw["id"],
        aliases=tuple(raw["aliases"]),
        trap=raw["trap"],
        source=raw["source"],
        published=raw["published"],
        config=raw["config"],
    )
