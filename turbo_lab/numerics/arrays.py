"""Values in, float32 arrays out: numpy arrays, lists and torch tensors are read alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError


def as_float32(values: Any) -> np.ndarray:
    """The values as a float32 array (a torch tensor is detached and copied to the CPU first).

    Wider input is rounded to float32 once, so every format is defined on float32.
    Raises UsageError for something that is not numbers.
    """
    if hasattr(values, "detach"):  # a torch tensor; numpy has no bf16, so torch widens it
        values = values.detach().cpu().float().numpy()
    try:
        return np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"values of type {type(values).__name__} are no numbers; "
            "allowed: numpy arrays, lists of numbers, torch tensors."
        ) from error


def require_no_nan(values: np.ndarray, *, what: str = "values") -> None:
    """Raise UsageError, with count and first position, when an entry is NaN."""
    bad = np.isnan(values)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise UsageError(
            f"{what}: {int(bad.sum())} of {values.size} entries are NaN, the first at {first}. "
            "A NaN has no code; find where it arises (often an overflow) before quantising."
        )


def require_finite(values: np.ndarray, *, what: str = "values") -> None:
    """Raise UsageError when an entry is NaN or infinite: no finite scale could hold it."""
    require_no_nan(values, what=what)
    bad = np.isinf(values)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise UsageError(
            f"{what}: {int(bad.sum())} of {values.size} entries are infinite, the first at "
            f"{first}. No finite scale holds them; clip them first, or use a scheme without a "
            "scale (granularity 'none') in a format that has infinities, such as fp8_e5m2."
        )
