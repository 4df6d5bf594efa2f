"""Answers as JSON text, so that no code of a submission is ever loaded by the grader.

Plain data only: numbers, text, None, Ellipsis, lists, tuples, sets, dicts and NumPy arrays of
numbers. A pickle would run code of the sender while it is read; JSON cannot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from turbo_lab.core.errors import RecordError

MAX_DEPTH = 40
_NUMBER_KINDS = "biuf"


class EncodingError(RecordError):
    """A value that is no plain data, or text that is no encoded value."""


def encode(value: Any) -> str:
    """``value`` as one line of JSON. Raises EncodingError naming the type that is no plain data."""
    try:
        return json.dumps(_pack(value, 0))
    except RecursionError:
        raise EncodingError("the value is nested too deeply") from None


def decode(text: str | bytes) -> Any:
    """The value behind ``encode``'s text. Raises EncodingError for anything else."""
    try:
        return _unpack(json.loads(text), 0)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise EncodingError(f"no encoded value ({type(error).__name__})") from None


def _pack(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise EncodingError(f"the value is nested more than {MAX_DEPTH} deep")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if value is ...:
        return {"stub": 1}
    if isinstance(value, Mapping):
        pairs = [[_pack(k, depth + 1), _pack(v, depth + 1)] for k, v in value.items()]
        return {"dict": pairs}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            items = [_pack(item, depth + 1) for item in value]
            return items if kind is list else {kind.__name__: items}
    return _pack_number(value, depth)


def _pack_number(value: Any, depth: int) -> Any:
    """NumPy arrays and scalars, and subclasses of numbers and text."""
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "kind", "") in tuple(_NUMBER_KINDS) and hasattr(value, "tolist"):
        plain = value.tolist()
        return {"array": plain, "dtype": dtype.str} if isinstance(plain, list) else plain
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise EncodingError(f"a {type(value).__name__} is no plain data")


def _array(content: Any, dtype: str) -> Any:
    import numpy as np

    wanted = np.dtype(dtype)
    if wanted.kind not in _NUMBER_KINDS:
        raise ValueError(dtype)
    return np.array(content, dtype=wanted)


def _unpack(data: Any, depth: int) -> Any:
    if depth > 2 * MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(data, list):
        return [_unpack(item, depth + 1) for item in data]
    if not isinstance(data, dict):
        return data
    if "array" in data:
        return _array(data["array"], data["dtype"])
    ((kind, content),) = data.items()
    if kind == "stub":
        return ...
    if kind == "dict":
        return {_unpack(k, depth + 1): _unpack(v, depth + 1) for k, v in content}
    kinds: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
    return kinds[kind](_unpack(item, depth + 1) for item in content)
