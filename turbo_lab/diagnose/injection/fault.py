"""A fault as data, what it left behind, and how well it was named."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from turbo_lab.diagnose.client_rules import client_findings
from turbo_lab.diagnose.finding import Finding
from turbo_lab.diagnose.log_rules import log_findings
from turbo_lab.diagnose.logscan import scan_log
from turbo_lab.diagnose.page_rules import DEFAULT_LIMITS, Limits, page_findings
from turbo_lab.diagnose.pages import Page
from turbo_lab.metrics.timeline import Timeline

if TYPE_CHECKING:
    from turbo_lab.diagnose.injection.ward import Ward

Source = Literal["log", "metrics", "client"]
SOURCES: tuple[Source, ...] = get_args(Source)
When = Literal["start", "running", "end"]


@dataclass(frozen=True)
class Evidence:
    """What one fault left: the log's lines, what the page counted, what the client saw.

    ``page`` is None where no page could be read or its numbers belong to no request of ours.
    """

    log: bytes = b""
    page: Page | None = None
    runs: tuple[Timeline, ...] = ()

    def findings(self, source: Source, *, limits: Limits = DEFAULT_LIMITS) -> list[Finding]:
        """What the doctor says of one source alone."""
        if source == "log":
            return log_findings(scan_log(io.BytesIO(self.log)), source="server.log")
        if source == "metrics":
            return page_findings(self.page, limits=limits) if self.page else []
        return client_findings(self.runs, server=self.page, limits=limits)


Inject = Callable[["Ward", bool], AbstractContextManager[Evidence]]


@dataclass(frozen=True)
class Fault:
    """One way to break a server.

    Attributes:
        name: short name.
        changed: what is changed, in words.
        symptom: what the user sees.
        causes: what the doctor must name, all of them.
        consequences: what it may name besides, for it is true as well: a queue delays first tokens.
        when: a server of its own that fails at its start, a running one, or one that ends by it.
        inject: enters with the fault (or, told False, with the same probe and no fault), gives the
            evidence, and takes the fault out at its end, whatever happened.
    """

    name: str
    changed: str
    symptom: str
    causes: tuple[str, ...]
    when: When
    inject: Inject = field(repr=False)
    consequences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examined:
    """The doctor's word on one fault. ``causes`` maps a source to what it named alone.

    ``reason`` says why nothing was examined; then ``causes`` is empty. ``numbers``: see
    ``figures.figures``.
    """

    fault: str
    on: bool
    expected: tuple[str, ...]
    consequences: tuple[str, ...]
    causes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    proofs: tuple[Mapping[str, str], ...] = ()
    reason: str | None = None
    numbers: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def named(self) -> frozenset[str]:
        """All causes, whatever source showed them."""
        return frozenset(cause for causes in self.causes.values() for cause in causes)

    @property
    def right(self) -> frozenset[str]:
        """Expected and named; none where no fault was put in."""
        return self.named & frozenset(self.expected) if self.on else frozenset()

    @property
    def missed(self) -> frozenset[str]:
        """Expected and not named."""
        return frozenset(self.expected) - self.named if self.on and not self.reason else frozenset()

    @property
    def wrong(self) -> frozenset[str]:
        """Named, and neither the fault nor a consequence of it."""
        return self.named - self.right - (frozenset(self.consequences) if self.on else frozenset())

    def seen_by(self, *sources: str) -> bool:
        """Whether these sources alone would have named every expected cause."""
        told = {cause for name in sources for cause in self.causes.get(name, ())}
        return set(self.expected) <= told

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, for records."""
        return asdict(self) | {
            "causes": {source: list(names) for source, names in self.causes.items()},
            "proofs": [dict(proof) for proof in self.proofs],
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Examined:
        """Inverse of ``to_dict``."""
        tuples = {name: tuple(raw[name]) for name in ("expected", "consequences", "proofs")}
        causes = {source: tuple(names) for source, names in raw["causes"].items()}
        return cls(**{**raw, **tuples, "causes": causes})


def judge(
    fault: Fault,
    evidence: Evidence,
    *,
    on: bool,
    limits: Limits = DEFAULT_LIMITS,
    numbers: Mapping[str, float | None] | None = None,
) -> Examined:
    """Let the doctor look at the evidence, one source at a time."""
    told = {source: evidence.findings(source, limits=limits) for source in SOURCES}
    proofs = tuple(
        {"cause": f.cause, "source": source, "where": f.where, "evidence": f.evidence}
        for source, findings in told.items()
        for f in findings
    )
    causes = {
        source: tuple(dict.fromkeys(f.cause for f in findings)) for source, findings in told.items()
    }
    return Examined(
        fault.name, on, fault.causes, fault.consequences, causes, proofs, numbers=numbers or {}
    )


@dataclass(frozen=True)
class Score:
    """Precision and recall; None where nothing was named, or nothing was to be named."""

    precision: float | None
    recall: float | None
    right: int
    wrong: int
    missed: int
    skipped: int

    def __str__(self) -> str:
        share = lambda x: "none" if x is None else f"{x:.3f}"  # noqa: E731
        return (
            f"precision {share(self.precision)}, recall {share(self.recall)}: {self.right} right, "
            f"{self.wrong} wrong, {self.missed} missed, {self.skipped} not injected here"
        )


def score(rows: Sequence[Examined]) -> Score:
    """Precision = right / (right + wrong), recall = right / (right + missed).

    What is named without a fault is wrong. True consequences of a fault count neither way.
    """
    right = sum(len(row.right) for row in rows)
    wrong = sum(len(row.wrong) for row in rows)
    missed = sum(len(row.missed) for row in rows)
    return Score(
        precision=right / (right + wrong) if right + wrong else None,
        recall=right / (right + missed) if right + missed else None,
        right=right, wrong=wrong, missed=missed,
        skipped=sum(1 for row in rows if row.on and row.reason),
    )  # fmt: skip
