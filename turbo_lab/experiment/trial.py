"""Did it help? One original, several candidates, each with one declared change and fresh servers.

A trial is a sweep whose values are whole configurations. Each differs from the original in one
declared setting, all are asked the very same prompts, and every restart leaves its record. What is
concluded follows from these records alone (see ``trial_verdict``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from turbo_lab.client.resources import growth
from turbo_lab.core.errors import RecordError, UnmeasuredError, UsageError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.experiment.arms import Arm
from turbo_lab.experiment.bench import Options
from turbo_lab.experiment.plan import BenchPlan, Scalar
from turbo_lab.experiment.run_folder import RECORD_NAME, RESOURCES_NAME, load_run
from turbo_lab.experiment.sweep import Launch, SweepPlan, label, run_sweep
from turbo_lab.records import store
from turbo_lab.records.digest import seal
from turbo_lab.records.journal import read_rows
from turbo_lab.records.schema import Record

KEY = "arm"
# What a verdict needs of a run; the rest (curves, the prompts themselves) stays in its folder.
COUNTERS = MappingProxyType({  # witnesses that a technique was at work, by the engine's account
    "guesses": "vllm:spec_decode_num_drafts_total",
    "guessed_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
    "reply_tokens": "vllm:generation_tokens_total",
})  # fmt: skip
KEPT = frozenset({"target", "prompts", "lengths", "replies", "slo", "cost", "resources"})


@dataclass(frozen=True)
class Candidate:
    """One change. ``key``: the engine argument that differs, None for the original.

    ``follows``: settings that the engine itself derives from that argument.
    """

    name: str
    key: str | None = None
    value: Scalar = None
    follows: tuple[str, ...] = ()


def candidate_plan(plan: BenchPlan, candidates: Sequence[Candidate], name: Scalar) -> BenchPlan:
    """The run of one candidate: it declares its own setting, and the others' as not set."""
    chosen = next((c for c in candidates if c.name == name), None)
    if chosen is None:
        raise UsageError(f"there is no candidate {name!r}: {[c.name for c in candidates]}")
    declared: dict[str, Scalar] = {c.key: None for c in candidates if c.key}
    if chosen.key:
        declared[chosen.key] = chosen.value
    return replace(plan, declared={**plan.declared, **declared})


@dataclass(frozen=True, kw_only=True)
class TrialPlan(SweepPlan):
    """A sweep over candidates, the original first. Made by ``trial_plan``."""

    candidates: tuple[Candidate, ...] = ()

    def plan_for(self, value: Scalar) -> BenchPlan:
        """The run of one candidate."""
        return candidate_plan(self.plan, self.candidates, value)


def trial_plan(
    plan: BenchPlan, *, candidates: Sequence[Candidate], restarts: int, study: str = "trial"
) -> TrialPlan:
    """A trial of these candidates; the primary metric is the plan's and must be named.

    The prompts must be the same in every run, so the plan needs given texts. Raises UsageError.
    """
    if not plan.workload.texts:
        raise UsageError("a trial asks the same in every run: give the plan's workload texts")
    if plan.primary_metric is None:
        raise UsageError("name the primary metric before the run (primary_metric=...)")
    if not candidates or candidates[0].key is not None:
        raise UsageError("the first candidate is the original: it has no key")
    if any(c.key is None for c in candidates[1:]):
        raise UsageError("every candidate behind the original declares the one setting it changes")
    return TrialPlan(
        key=KEY, values=tuple(c.name for c in candidates), plan=plan, restarts=restarts,
        metric=plan.primary_metric, study=study, candidates=tuple(candidates),
    )  # fmt: skip


def candidate_args(args: VllmArgs, candidates: Sequence[Candidate]) -> dict[str, VllmArgs]:
    """Arguments by name: the original's, each with the candidate's setting and no other."""
    return {c.name: args.replace(**{c.key: c.value}) if c.key else args for c in candidates}


def run_trial(
    trial: TrialPlan, *, launch: Launch, out: str | Path, options: Options | None = None
) -> list[dict[str, Any]]:
    """All restarts that are still missing in ``out``, in counterbalanced order; then all rows.

    A run that has its record is not repeated, so a trial that was stopped goes on where it was.
    Raises UnmeasuredError where a candidate has no run at all, with what its server said.
    """
    result = run_sweep(trial, launch=launch, out=out, options=options, store_floor=False)
    if missing := [name for name in map(str, trial.values) if name not in result.arms]:
        why = "; ".join(f"{f.value}: {f.reason}" for f in result.failures)
        raise UnmeasuredError(f"no run of {', '.join(missing)}. {why}")
    return trial_rows(trial, Path(out))


def trial_rows(trial: TrialPlan, folder: Path) -> list[dict[str, Any]]:
    """One row per restart, ready for a record: ``arm``, its ``record``, the reply ``texts``, and
    how far the engine's ``counters`` went up (None: it does not count that).
    """
    rows = []
    for name in map(str, trial.values):
        for path in sorted((folder / label(KEY, name)).glob(f"*/{RECORD_NAME}"), key=_restart):
            saved = load_run(path.parent)
            asked = range(trial.plan.requests)
            rows.append({
                "arm": name,
                "record": slim(store.load(path)).model_dump(mode="json"),
                "texts": [t.text if (t := saved.timelines.get(i)) else None for i in asked],
                "counters": _counters(path.parent),
            })  # fmt: skip
    return rows


def _restart(path: Path) -> tuple[int, ...]:
    """Order of the rounds: the tenth restart comes after the second."""
    return tuple(int(digits) for digits in re.findall(r"\d+", path.parent.name))


def _counters(folder: Path) -> dict[str, float | None]:
    rows = read_rows(folder / RESOURCES_NAME) if (folder / RESOURCES_NAME).is_file() else []
    return {name: growth(rows, counter) for name, counter in COUNTERS.items()}


def slim(record: Record) -> Record:
    """The record without the observations that no verdict reads."""
    kept = tuple(o for o in record.observations if o.name in KEPT)
    return seal(record.model_copy(update={"observations": kept}))


@dataclass(frozen=True)
class Trial:
    """What was measured: an arm per candidate in order; replies and counters of each restart."""

    candidates: tuple[Candidate, ...]
    arms: Mapping[str, Arm]
    texts: Mapping[str, tuple[tuple[str | None, ...], ...]]
    counters: Mapping[str, tuple[Mapping[str, float | None], ...]]

    @property
    def original(self) -> Arm:
        """The arm that all others are held against."""
        return self.arms[self.candidates[0].name]

    @property
    def restarts(self) -> int:
        """Restarts of the arm that has the fewest."""
        return min(len(arm.records) for arm in self.arms.values())

    @property
    def in_turns(self) -> bool:
        """Whether the runs' dates form rounds: each arm ran once before any arm ran again."""
        dates = [sorted(r.created_at for r in arm.records) for arm in self.arms.values()]
        rounds = list(zip(*dates, strict=False))
        return all(max(a) <= min(b) for a, b in pairwise(rounds))

    def candidate(self, name: str) -> Candidate:
        """One candidate by name. Raises UsageError."""
        for one in self.candidates:
            if one.name == name:
                return one
        raise UsageError(f"there is no candidate {name!r}: {[c.name for c in self.candidates]}")


def read_trial(rows: Sequence[Mapping[str, Any]], candidates: Sequence[Candidate]) -> Trial:
    """Inverse of ``trial_rows``. Raises RecordError for a candidate without a row."""
    arms, texts, counters = {}, {}, {}
    for one in candidates:
        mine = [row for row in rows if row["arm"] == one.name]
        if not mine:
            raise RecordError(f"the record holds no run of {one.name!r}")
        found = tuple(Record.model_validate(row["record"]) for row in mine)
        arms[one.name] = Arm(one.name, found)
        texts[one.name] = tuple(tuple(row["texts"]) for row in mine)
        counters[one.name] = tuple(row["counters"] for row in mine)
    return Trial(tuple(candidates), arms, texts, counters)
