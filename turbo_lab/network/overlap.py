"""Computing while the network works: what is hidden, and what is still seen.

Full overlap costs ``max(compute, communication)``, none costs their sum; a measured time lies
between and says which share of the communication was exposed.
"""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError


@dataclass(frozen=True)
class Overlap:
    """A step's two parts, each measured or predicted alone."""

    compute_s: float
    communication_s: float

    def __post_init__(self) -> None:
        """Refuse negative times."""
        if self.compute_s < 0 or self.communication_s < 0:
            raise UsageError(
                f"compute {self.compute_s} s and communication {self.communication_s} s must be 0 "
                "or more"
            )

    @property
    def least_s(self) -> float:
        """Everything that can be hidden is hidden: the larger of the two."""
        return max(self.compute_s, self.communication_s)

    @property
    def most_s(self) -> float:
        """Nothing is hidden: the sum."""
        return self.compute_s + self.communication_s

    def total_s(self, *, exposed: float) -> float:
        """Seconds of the step when ``exposed`` (0 to 1) of the communication is not hidden.

        Never less than ``least_s``: what is longer than the computation always shows.
        """
        if not 0 <= exposed <= 1:
            raise UsageError(f"the exposed share is {exposed}; allowed: 0 to 1")
        return max(self.least_s, self.compute_s + exposed * self.communication_s)

    def exposed_share(self, total_s: float) -> float:
        """Share of the communication that a measured step shows: ``(total - compute) / comm``.

        Cut to 0 to 1; 0 where there is no communication.
        """
        if not self.communication_s:
            return 0.0
        return min(1.0, max(0.0, (total_s - self.compute_s) / self.communication_s))

    def in_pieces_s(self, pieces: int) -> float:
        """Seconds when both are cut into equal pieces, and a piece is sent while the next computes.

        ``(longer part) + (shorter part) / pieces``: the first piece computes alone, or the last one
        is sent alone. More pieces hide more, until their latency (not counted here) costs more.
        """
        if pieces < 1:
            raise UsageError(f"{pieces} pieces; allowed: 1 or more")
        shorter = min(self.compute_s, self.communication_s)
        return self.least_s + shorter / pieces
