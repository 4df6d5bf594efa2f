"""Simulated time in whole femtoseconds, so that a jump over many steps ends exactly where they do.

Costs are rounded once to a femtosecond; all else is addition and multiplication of whole numbers,
which is exact. A float would end a jump and its single steps on different last digits, and two
requests that tie in one run would not tie in the other.
"""

from __future__ import annotations

from math import sqrt

from turbo_lab.sim.calibration import Calibration

FS_PER_S = 10**15
LATEST_S = 1e12  # Latest arrival, 30,000 years: more is a time in a wrong unit.
NEVER = 1 << 100  # Later than any event.


def to_fs(seconds: float) -> int:
    """Whole femtoseconds."""
    return round(seconds * FS_PER_S)


def to_s(time_fs: int) -> float:
    """Seconds."""
    return time_fs / FS_PER_S


def run_fs(steps: int, first_fs: int, growth_fs: int) -> int:
    """Length of ``steps`` steps, the first of ``first_fs``, each longer by ``growth_fs``.

    ``n a + g n (n - 1) / 2``: the caches of B decoding sequences grow by B tokens a step.
    """
    return steps * first_fs + growth_fs * (steps * (steps - 1) // 2)


def steps_until(wait_fs: int, first_fs: int, growth_fs: int) -> int:
    """The fewest steps, at least 1, that take ``wait_fs`` or longer."""
    if wait_fs <= first_fs:
        return 1
    if growth_fs:
        slope = first_fs - growth_fs / 2
        steps = int(2 * wait_fs / (slope + sqrt(slope * slope + 2.0 * growth_fs * wait_fs)))
        steps = max(steps, 1)
    else:
        steps = -(-wait_fs // first_fs)
    while run_fs(steps, first_fs, growth_fs) < wait_fs:
        steps += 1
    while steps > 1 and run_fs(steps - 1, first_fs, growth_fs) >= wait_fs:
        steps -= 1
    return steps


class StepClock:
    """Step costs of one calibration in femtoseconds, decode costs as a table.

    ``decode_fs[B]``: fixed part and B decoding sequences, each of which computes
    ``tokens_per_sequence`` tokens (more than 1 when drafts are verified, which costs what so many
    sequences cost, their caches read once), behind ``draft_s`` of drafting.
    """

    __slots__ = ("context_fs", "decode_fs", "pair_fs", "request_fs", "token_fs")

    def __init__(
        self, calibration: Calibration, *, tokens_per_sequence: int = 1, draft_s: float = 0.0
    ) -> None:
        self.token_fs = to_fs(calibration.prefill_token_s)
        self.pair_fs = to_fs(calibration.prefill_context_s)
        self.context_fs = to_fs(calibration.context_token_s)
        self.request_fs = to_fs(calibration.request_s)
        fixed, spare = calibration.fixed_s, [0.0, *[draft_s] * calibration.max_sequences]
        self.decode_fs = [
            to_fs(fixed + spare[b] + calibration.decode_s(b * tokens_per_sequence))
            for b in range(calibration.max_sequences + 1)
        ]
