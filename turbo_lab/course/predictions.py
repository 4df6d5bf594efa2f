"""Turn what a learner states into a checked ``Prediction``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.course.display import format_allowed, format_number
from turbo_lab.course.sampling import missing_number, number
from turbo_lab.records.schema import Prediction

_NAME = re.compile(r"[a-z][a-z0-9_]*")
Band = tuple[float | None, float | None]


def make_prediction(
    name: str,
    value: float | Callable[[], float],
    *,
    unit: str,
    tolerance: float | None,
    band: Band | None,
    why: str,
    published: str | None,
) -> Prediction:
    """Check the parts and put them together; see ``Lesson.predict`` for their meaning.

    Raises UsageError naming the wrong part.
    """
    check_name(name)
    _check_criterion(name, tolerance=tolerance, band=band)
    predicted, reason = _computed(name, value)
    return Prediction(
        name=name,
        value=predicted,
        unit=unit,
        tolerance=tolerance,
        band=band,
        why=why,
        reason=reason,
        published_claim=published,
        published=_published(name, published, unit=unit),
    )


def stated(prediction: Prediction) -> str:
    """The prediction in a few words: ``23,296 tokens, exact``."""
    if prediction.value is None:
        return f"not possible ({prediction.reason})"
    allowed = format_allowed(prediction.tolerance, prediction.band)
    return f"{format_number(prediction.value)} {prediction.unit}, {allowed}"


def differ(one: Prediction, other: Prediction) -> bool:
    """True when two predictions state different things; the wording of ``why`` may change.

    Values that differ by rounding alone (another CPU's floating point) are the same.
    """
    fields = {"unit", "tolerance", "band", "reason"}
    if one.model_dump(include=fields) != other.model_dump(include=fields):
        return True
    if one.value is None or other.value is None:
        return one.value is not other.value
    if isinstance(one.value, int) and isinstance(other.value, int):
        return one.value != other.value
    return not math.isclose(one.value, other.value, rel_tol=1e-9)


def check_name(name: str) -> None:
    """Raise UsageError unless ``name`` can stand in a record and in ``lab.text``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "predicted":
        raise UsageError(f"{name!r} cannot be a name; use lower-case words such as 'ttft_s'.")


def _computed(name: str, value: Any) -> tuple[int | float | None, str | None]:
    if callable(value):
        try:
            value = value()
        except (UnmeasuredError, TypeError) as error:
            if (reason := missing_number(error)) is None:
                raise
            return None, f"no prediction: {reason}"
        if value is None:
            return None, "no prediction: a number it needs is unmeasured"
    found = number(value)
    if found is None or not math.isfinite(found):
        raise UsageError(f"predict({name!r}): {value!r} is no finite number.")
    return found, None


def _check_criterion(name: str, *, tolerance: float | None, band: Band | None) -> None:
    if (tolerance is None) == (band is None):
        raise UsageError(
            f"predict({name!r}): say how far off the measurement may be, either tolerance=0.1 "
            "(relative; 0.0 for equality) or band=(low, high)."
        )
    if tolerance is not None and not 0 <= tolerance < math.inf:
        raise UsageError(f"predict({name!r}): tolerance is {tolerance!r}; it must be 0 or more.")
    if band is None:
        return
    ends = [end for end in band if end is not None]
    if len(band) != 2 or not ends or ends != sorted(ends) or not all(map(math.isfinite, ends)):
        raise UsageError(
            f"predict({name!r}): band is {band!r}; give (low, high), one end may be None."
        )


def _published(name: str, claim_id: str | None, *, unit: str) -> float | None:
    """The claim's number, which must be in the prediction's unit."""
    if claim_id is None:
        return None
    from turbo_lab.course.claims import claim

    found = claim(claim_id)
    if found.unit != unit:
        raise UsageError(
            f"predict({name!r}): claim {claim_id!r} is in {found.unit!r}, the prediction in "
            f"{unit!r}. Convert the prediction, or leave published= out."
        )
    return found.number
