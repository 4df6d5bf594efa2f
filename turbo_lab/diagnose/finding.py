"""What the doctor says: findings, and what to collect when it finds nothing it knows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Confidence = Literal["high", "medium", "low"]
Kind = Literal["log", "metrics", "record", "timelines"]
ORDER: dict[Confidence, int] = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True)
class Finding:
    """One probable cause with its proof.

    ``evidence`` is a line of the log (secrets removed) or the numbers that led to it; ``where``
    names the line or the metric; ``count`` says how often it was seen.
    """

    cause: str
    confidence: Confidence
    evidence: str
    next_probe: str
    fix: str
    means: str
    where: str
    count: int
    source: str


@dataclass(frozen=True)
class Diagnosis:
    """All findings about the targets, the surest first.

    ``known`` is False when nothing in the targets was recognised as a server's log, page or
    record; then ``collect`` lists what would help.
    """

    findings: tuple[Finding, ...]
    known: bool
    collect: tuple[str, ...]
    read: tuple[dict[str, Any], ...]

    @property
    def causes(self) -> tuple[str, ...]:
        """Ids of the causes, in the order of the findings, each once."""
        return tuple(dict.fromkeys(found.cause for found in self.findings))

    def to_dict(self) -> dict[str, Any]:
        """The form that ``turbo-lab doctor --json`` prints."""
        return {
            "findings": [asdict(found) for found in self.findings],
            "healthy": self.known and not self.findings and not self.collect,
            "known": self.known,
            "collect": list(self.collect),
            "read": list(self.read),
        }


def ranked(findings: list[Finding]) -> tuple[Finding, ...]:
    """Surest first; within one confidence the order of discovery."""
    return tuple(sorted(findings, key=lambda found: ORDER[found.confidence]))
