"""Sentences whose numbers come from the record, so that no measured number is typed into prose."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UnmeasuredError, UsageError, did_you_mean
from turbo_lab.course.sampling import missing_number


@dataclass(frozen=True)
class Prose:
    """Text that JupyterLab renders as Markdown and that prints as it is."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text


class _Formatter(string.Formatter):
    """``{name:.3f}`` looks up measured values; an absent one reads ``unmeasured (reason)``."""

    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if isinstance(key, int):
            raise UsageError("lab.text: write {name:.3f} with the name of a measurement, not {}.")
        if key not in kwargs:
            raise UsageError(f"lab.text: nothing is called {key!r}.{did_you_mean(key, [*kwargs])}")
        value = kwargs[key]
        return _call(value) if callable(value) else value

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return "unmeasured"
        if isinstance(value, _Reason):
            return f"unmeasured ({value})"
        try:
            return super().format_field(value, format_spec)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"lab.text: {value!r} does not fit {format_spec!r}: {error}"
            ) from error


class _Reason(str):
    """Why a computed value is missing."""


def _call(value: Any) -> Any:
    try:
        return value()
    except (UnmeasuredError, TypeError) as error:
        if (reason := missing_number(error)) is None:
            raise
        return _Reason(reason)


def render(template: str, values: Mapping[str, Any]) -> Prose:
    """Fill ``template`` from ``values`` (numbers, observations, or functions that compute one).

    Raises UsageError for a name that does not exist or a format that does not fit.
    """
    try:
        return Prose(_Formatter().vformat(template, (), dict(values)))
    except (KeyError, IndexError, AttributeError, TypeError) as error:
        raise UsageError(
            f"lab.text: {template[:60]!r} asks for a part that is missing: {error}."
        ) from error
