"""What a submission may use. The defaults fit a notebook in replay mode with room to spare."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from turbo_lab.core import units
from turbo_lab.core.errors import UsageError

MIN_MEMORY_BYTES = 128 * units.MiB  # below that Python and NumPy do not even start


@dataclass(frozen=True)
class Limits:
    """Limits of one notebook of one submission.

    Attributes:
        wall_s: Seconds by the clock for the whole notebook, restarts included.
        step_s: Seconds by the clock for one cell, or for one call of an answer.
        cpu_s: Seconds of processor time of one process.
        memory_bytes: Address space of one process, and resident memory of all together.
        processes: Processes at one time.
        output_bytes: What all cells together may print.
        disk_bytes: Size of the folder the submission may write to, and of a single file.
    """

    wall_s: float = 300.0
    step_s: float = 60.0
    cpu_s: float = 120.0
    memory_bytes: int = 4 * units.GiB
    processes: int = 32
    output_bytes: int = 8 * units.MiB
    disk_bytes: int = 256 * units.MiB

    def __post_init__(self) -> None:
        """Refuse what no submission could live with."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not math.isfinite(value) or value <= 0:
                raise UsageError(f"{field.name} is {value!r}; allowed: a number above 0.")
        if self.memory_bytes < MIN_MEMORY_BYTES:
            raise UsageError(
                f"memory_bytes is {self.memory_bytes}; allowed: {MIN_MEMORY_BYTES} or more, Python "
                "itself needs about that."
            )

    def to_json(self) -> dict[str, Any]:
        """Plain data, as kept with the results."""
        return dataclasses.asdict(self)
