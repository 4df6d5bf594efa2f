"""What a notebook talks to: ``start_lesson``, ``check``, ``reveal``; ``require`` in graded cells.

The names are loaded at first use, so that importing this folder costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbo_lab.course.claims import claim, references
    from turbo_lab.course.exercises import check, require, reveal
    from turbo_lab.course.lesson import start_lesson

__all__ = ["check", "claim", "references", "require", "reveal", "start_lesson"]


def __getattr__(name: str) -> Any:
    """Load the module that holds ``name``; raise AttributeError for anything else."""
    if name in ("check", "require", "reveal"):
        module = "exercises"
    elif name in ("claim", "references"):
        module = "claims"
    elif name == "start_lesson":
        module = "lesson"
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
