"""Notebook files: reading, and the small facts that several parts ask for."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import ConfigError

STAMP = "turbo_lab"  # key in a notebook's metadata, written by refresh


def read_notebook(path: Path) -> Any:
    """Read a notebook file. Raises ConfigError when it is missing or damaged."""
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is missing, but course.toml lists it.") from error
    except Exception as error:  # nbformat raises several unrelated kinds
        raise ConfigError(f"{path} is not a valid notebook: {error}") from error


def cell_tags(cell: Any) -> list[str]:
    """Tags of a cell."""
    return list(cell.metadata.get("tags", []))


def sources_digest(notebook: Any) -> str:
    """Digest over kind, tags and source of every cell: changes when anything was edited."""
    parts = [f"{c.cell_type}\0{cell_tags(c)}\0{c.source}" for c in notebook.cells]
    return hashlib.sha256("\1".join(parts).encode()).hexdigest()


def output_text(output: Any) -> str:
    """What nbval can compare of one output: stream text, text and Markdown data."""
    if output.output_type == "stream":
        return _joined(output.text)
    data = output.get("data", {})
    kinds = ("text/plain", "text/markdown", "text/html", "text/latex")
    if "image/png" in data:
        return ""  # nbval compares neither the picture nor anything that tells it apart
    return "".join(_joined(data[kind]) for kind in kinds if kind in data)


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
