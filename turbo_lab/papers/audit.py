"""What is missing around a paper's numbers, and which traps they may stand in.

A trap is no verdict about the paper. It says what a reader must know before the number may be
compared with another one. Ids are stable: notebooks and tests refer to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from turbo_lab.papers.schema import Claim, Conditions, PaperRecord
from turbo_lab.papers.template import UNFINISHED

# Ids of the missing conditions follow the names of the fields.
MISSING = {
    "precision": "the number format of weights, cache and products",
    "input": "the input lengths",
    "output": "the output lengths",
    "concurrency": "the concurrency or the arrival rate",
    "framework": "the engine and its version",
    "gpu": "the accelerator",
}
TRAPS = {
    "precision_dividend": "the arms differ in number format: part of the gain is bytes, not method",
    "batch_changed": "the arms differ in batch size: filling the card is not the method",
    "logging_changed": "the arms differ in logging: leaving work out is not the method",
    "hardware_changed": "the arms run on different hardware",
    "model_changed": "the arms run different models",
    "compared_only_with_itself": "no claim compares with another system than its own off state",
    "no_baseline": "the number stands alone: nothing is compared",
    "weak_baseline": "the baseline is a simple or untuned system, which inflates the factor",
    "percentile_of_survivors": "percentiles leave failed or refused requests out",
    "version_drift": "the number changed between versions: cite the version",
    "special_hardware": "the number needs hardware that an ordinary cloud host does not have",
    "simulated": "the number comes from a simulation, not from a measurement",
    "best_case_only": "all numbers are the best case (up to); the typical one is not given",
    "number_not_found": "no number could be read in the sources",
    "from_memory": "parts of the record were not looked up",
    "second_hand": "the number was read in a secondary source",
    "unfinished": "parts of the record are still to be written",
}  # fmt: skip


@dataclass(frozen=True)
class Remark:
    """One thing to know. ``claim`` is the number of the claim (1 is the first), None for all."""

    id: str
    kind: str
    claim: int | None
    text: str
    evidence: str


@dataclass(frozen=True)
class Audit:
    """All remarks about one record."""

    paper: str
    remarks: tuple[Remark, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the remarks, each once."""
        return tuple(dict.fromkeys(remark.id for remark in self.remarks))

    @property
    def missing(self) -> tuple[str, ...]:
        """Ids of the missing conditions."""
        return tuple(r.id for r in self.remarks if r.kind == "missing")

    @property
    def traps(self) -> tuple[str, ...]:
        """Ids of the traps, each once."""
        return tuple(dict.fromkeys(r.id for r in self.remarks if r.kind == "trap"))

    def to_dict(self) -> dict[str, Any]:
        """The form that ``turbo-lab papers audit --json`` prints."""
        return {
            "paper": self.paper,
            "missing": list(self.missing),
            "traps": list(self.traps),
            "remarks": [asdict(remark) for remark in self.remarks],
        }


def audit(record: PaperRecord) -> Audit:
    """Name the missing metric conditions and the traps of one record."""
    remarks = [*_missing(record.conditions)]
    for number, claim in enumerate(record.claims, 1):
        remarks += _of_claim(claim, number)
    remarks += _of_record(record)
    return Audit(paper=record.id, remarks=tuple(remarks))


def _missing(conditions: Conditions) -> Iterable[Remark]:
    for name, text in MISSING.items():
        if not getattr(conditions, name):
            yield Remark(f"missing_{name}", "missing", None, f"not stated: {text}", "conditions")


def _trap(name: str, claim: int | None, evidence: str) -> Remark:
    return Remark(name, "trap", claim, TRAPS[name], evidence)


def _of_claim(claim: Claim, number: int) -> list[Remark]:
    about = f"{claim.what}: {claim.number or 'no number'}"
    out = []
    names = {"precision": "precision_dividend"}
    for changed in claim.changed:
        out.append(_trap(names.get(changed, f"{changed}_changed"), number, about))
    if claim.against == "naive":
        out.append(_trap("weak_baseline", number, about))
    if claim.against == "none":
        out.append(_trap("no_baseline", number, about))
    if claim.counted == "survivors":
        out.append(_trap("percentile_of_survivors", number, about))
    if claim.simulated:
        out.append(_trap("simulated", number, about))
    if claim.number is None:
        out.append(_trap("number_not_found", number, about))
    if claim.status == "secondary":
        out.append(_trap("second_hand", number, about))
    if claim.status == "memory":
        out.append(_trap("from_memory", number, about))
    return out


def _of_record(record: PaperRecord) -> list[Remark]:
    out = []
    known = {claim.against for claim in record.claims if claim.against is not None}
    if known and known <= {"itself", "bound"} and "itself" in known:
        out.append(_trap("compared_only_with_itself", None, record.setting.baselines or "claims"))
    if record.version_drift:
        out.append(_trap("version_drift", None, record.version_drift))
    if record.needs_hardware:
        out.append(_trap("special_hardware", None, ", ".join(record.needs_hardware)))
    if UNFINISHED in record.model_dump_json():
        out.append(_trap("unfinished", None, record.id))
    if _only_best(record.claims):
        out.append(_trap("best_case_only", None, record.claims[0].what))
    if record.from_memory and not any(claim.status == "memory" for claim in record.claims):
        out.append(_trap("from_memory", None, ", ".join(record.from_memory)))
    return out


def _only_best(claims: Sequence[Claim]) -> bool:
    numbers = [claim.number.lower() for claim in claims if claim.number]
    return bool(numbers) and all(number.startswith("up to") for number in numbers)
