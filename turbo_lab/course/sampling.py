"""Ask a measuring function, and turn whatever it returns into samples or a reason."""

from __future__ import annotations

import inspect
import json
import math
import statistics
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import TurboLabError, UnmeasuredError, UsageError
from turbo_lab.metrics.summary import Metric, Quantity
from turbo_lab.records.schema import Statistic

# A failure of the thing measured. A wrong call (UsageError) and a bug in the notebook
# (NameError, TypeError) are not: they must stop the cell instead of looking like a result.
FAILURES = (TurboLabError, OSError, TimeoutError, subprocess.SubprocessError)

STATISTICS: dict[Statistic, Callable[[list[float]], float]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "min": min,
    "max": max,
}


@dataclass(frozen=True)
class Taken:
    """What one call of a measuring function gave. ``reason`` says why there is no number."""

    samples: tuple[float | None, ...] = ()
    definition: str | None = None
    extra: Any = None
    reason: str | None = None

    def value(self, statistic: Statistic) -> float | None:
        """The number that stands for the samples; None when there is a reason."""
        if self.reason is not None:
            return None
        numbers = [s for s in self.samples if s is not None]
        return numbers[0] if len(numbers) == 1 else STATISTICS[statistic](numbers)


def attempt(fn: Callable[[], Any]) -> tuple[Any, str | None]:
    """Call ``fn``: (its result, None), or (None, the reason of its failure).

    Only failures of the measured thing are caught; UsageError and programming errors pass.
    """
    try:
        return _no_coroutine(fn()), None
    except UsageError:
        raise
    except FAILURES as error:
        return None, str(error) or type(error).__name__


def missing_number(error: Exception) -> str | None:
    """The reason, when a computation failed because a number it needs is missing; else None.

    Observations and metrics give None for what is unmeasured; arithmetic with it is no bug.
    """
    if isinstance(error, UnmeasuredError):
        return str(error)
    if isinstance(error, TypeError) and "NoneType" in str(error):
        return "a number it needs is unmeasured"
    return None


def _no_coroutine(result: Any) -> Any:
    if inspect.iscoroutine(result):
        result.close()
        raise UsageError(
            "The measuring function is async. Await it in the cell first, then pass the result: "
            "result = await ask(...); lab.measure(name, lambda: result, unit=...)."
        )
    return result


def take(fn: Callable[[], Any], *, name: str) -> Taken:
    """Samples from what ``fn`` returns.

    Accepted: a number, a list or array of numbers, a ``metrics`` Metric or Quantity, or a mapping
    with ``value`` or ``samples`` whose other entries are kept as an observation. An undefined or
    non-finite sample makes the whole measurement unmeasured (dropping it would leave only the
    survivors); the raw samples are kept.

    Raises UsageError for anything else.
    """
    result, reason = attempt(fn)
    if reason is not None:
        return Taken(reason=reason)
    if isinstance(result, Quantity):
        found = () if result.value is None else (result.value,)
        why = result.why_not or "undefined"
        return _checked(found, definition=result.definition, why_empty=why)
    if isinstance(result, Metric):
        return _checked(result.values, definition=result.definition)
    if isinstance(result, Mapping):
        return _from_mapping(result, name=name)
    return _checked(_numbers(result, name=name))


def _from_mapping(result: Mapping[str, Any], *, name: str) -> Taken:
    rest = {key: item for key, item in result.items() if key not in ("value", "samples")}
    given = result.get("samples", result.get("value"))
    if given is None and "value" not in result:
        raise UsageError(
            f"measure({name!r}): the mapping it got has {', '.join(map(str, result))}; it needs "
            "'value' or 'samples'. For data without a number use lab.observe(name, fn)."
        )
    samples = (None,) if given is None else _numbers(given, name=name)
    return _checked(samples, extra=json_copy(rest, name=name) if rest else None)


def _checked(
    samples: tuple[float | None, ...],
    *,
    definition: str | None = None,
    extra: Any = None,
    why_empty: str = "no sample",
) -> Taken:
    """Refuse to draw a number from samples that are absent, undefined or not finite."""
    shown = tuple(s if s is not None and math.isfinite(s) else None for s in samples)
    bad = shown.count(None)
    reason = None
    if not shown:
        reason = why_empty
    elif bad:
        reason = f"{bad} of {len(shown)} samples undefined or not finite"
    return Taken(samples=shown, definition=definition, extra=extra, reason=reason)


def number(value: Any) -> int | float | None:
    """A plain Python number from an int, float, bool or NumPy scalar; None for anything else."""
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int | float) else None


def _numbers(result: Any, *, name: str) -> tuple[float | None, ...]:
    if (single := number(result)) is not None:
        return (single,)
    items = result.tolist() if hasattr(result, "tolist") else result
    if isinstance(items, list | tuple):
        found = [number(item) for item in items]
        if all(f is not None or item is None for f, item in zip(found, items, strict=True)):
            return tuple(found)
    raise UsageError(
        f"measure({name!r}): the function returned {type(result).__name__} "
        f"({str(result)[:60]!r}). Return a number, a list of numbers, or a mapping with 'value' "
        "or 'samples'; raise UnmeasuredError(reason) when there is none."
    )


def json_copy(data: Any, *, name: str) -> Any:
    """``data`` as it will read after being stored, so that live and replay give equal types.

    NumPy values and objects with ``to_dict`` become plain data. Raises UsageError otherwise.
    """
    try:
        return json.loads(json.dumps(data, default=_plain, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name!r} returned data that JSON cannot hold ({error}). Use numbers, text, lists "
            "and dicts, and None for what is undefined."
        ) from error


def _plain(item: Any) -> Any:
    for method in ("to_dict", "tolist"):
        if hasattr(item, method):
            return getattr(item, method)()
    if isinstance(item, set | frozenset):
        return sorted(item)
    raise TypeError(f"{type(item).__name__} is no plain data")
