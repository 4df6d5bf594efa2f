"""Parameters of the vision towers that come with language models."""

from __future__ import annotations

from turbo_lab.models.spec import ModelSpec


def vision_parameters(spec: ModelSpec) -> int | None:
    """Parameters of the vision tower and its projection; 0 without one, None when unknown."""
    return None if spec.root_config.get("vision_config") else 0
