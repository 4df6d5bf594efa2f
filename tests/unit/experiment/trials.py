"""Trials of known speed for tests: run folders as a real trial leaves them, no clock involved."""

from __future__ import annotations

import json
from pathlib import Path

from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.experiment.sweep import label
from turbo_lab.experiment.trial import (
    KEY,
    Candidate,
    Trial,
    TrialPlan,
    read_trial,
    trial_plan,
    trial_rows,
)
from turbo_lab.records.digest import seal
from turbo_lab.records.schema import Record
from turbo_lab.records.store import write_text_atomically
from turbo_lab.workload.shape import Workload

from .conftest import made_run, quick_plan

TEXTS = tuple(f"question {i}" for i in range(30))
ANSWERS = (("a",),) * 30  # the made replies say "a b c"
FAST = Candidate("fast", "kv_cache_dtype", "fp8")
SLOW = Candidate("slow", "speculative_config", '{"method": "ngram"}')
CANDIDATES = (Candidate("original"), FAST, SLOW)
SLO = {"ttft": 0.5}


def plan(**more) -> BenchPlan:
    facts = {"workload": Workload(texts=TEXTS), "primary_metric": "throughput", "slo": SLO}
    return quick_plan(**{**facts, **more})


def made_trial_plan(restarts: int = 5) -> TrialPlan:
    return trial_plan(plan(), candidates=CANDIDATES, restarts=restarts)


def made_trial(folder: Path, *, restarts: int = 5, **slower: float) -> TrialPlan:
    """Runs of every candidate; ``slower`` by name (original, fast, slow), 1.0 by default."""
    trial = made_trial_plan(restarts)
    for arm, one in enumerate(CANDIDATES):
        for restart in range(1, restarts + 1):
            own = trial.plan_for(one.name)
            made_run(
                folder / label(KEY, one.name) / f"restart-{restart}",
                slower=slower.get(one.name, 1.0) * (1 + 0.002 * restart),
                seed=100 * arm + restart, workload=own.workload, declared=own.declared,
                primary_metric=own.primary_metric, slo=own.slo,
            )  # fmt: skip
    return trial


def load(folder: Path, trial: TrialPlan) -> Trial:
    return read_trial(trial_rows(trial, folder), CANDIDATES)


def rescale(path: Path, factor: float) -> None:
    """Edit one sample file: all its rates times ``factor``; sealed again, as a new run would be."""
    record = Record.model_validate(json.loads(path.read_text()))
    rows = tuple(
        m.model_copy(update={"samples": tuple(v and v * factor for v in m.samples),
                             "value": m.value and m.value * factor})
        if m.name == "output_rate_tok_s" else m
        for m in record.measurements
    )  # fmt: skip
    new = seal(record.model_copy(update={"measurements": rows}))
    write_text_atomically(json.dumps(new.model_dump(mode="json")), path)
