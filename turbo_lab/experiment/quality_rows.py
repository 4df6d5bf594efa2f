"""Rows of a quality table as plain data, as records keep them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from turbo_lab.experiment.quality_paired import PairedDifference
from turbo_lab.experiment.quality_table import QualityRow, ReplyQuality, TextQuality


def row_to_dict(row: QualityRow) -> dict[str, Any]:
    """JSON form of a row; inverse of :func:`row_from_dict`."""
    return asdict(row)


def row_from_dict(raw: Mapping[str, Any]) -> QualityRow:
    """The row that :func:`row_to_dict` wrote."""
    values = dict(raw)
    if (text := values.get("text")) is not None:
        values["text"] = TextQuality(**_with_differences(text, ("nll", "kl", "other_top")))
    if values.get("replies") is not None:
        values["replies"] = reply_quality_from_dict(values["replies"])
    if (needle := values.get("needle")) is not None:
        values["needle"] = PairedDifference(**needle)
    return QualityRow(**values)


def reply_quality_from_dict(raw: Mapping[str, Any]) -> ReplyQuality:
    """What ``dataclasses.asdict`` made of a :class:`ReplyQuality`."""
    return ReplyQuality(**_with_differences(raw, ("passed", "different")))


def _with_differences(raw: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {k: PairedDifference(**v) if k in names else v for k, v in raw.items()}
