"""A trial in a lesson: run live (it goes on where it was stopped), replayed, or taken from the full
record, whose restarts are many enough for a verdict.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.replay import Recorded
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.experiment.arms import observed
from turbo_lab.experiment.bench import Options
from turbo_lab.experiment.launch import FreshServers
from turbo_lab.experiment.trial import (
    Candidate,
    Trial,
    TrialPlan,
    candidate_args,
    read_trial,
    run_trial,
)
from turbo_lab.records import store

NAME = "trial"


@dataclass(frozen=True)
class ShownTrial:
    """A trial and where its numbers come from."""

    trial: Trial
    label: str


def trial_folder(lab: Lesson) -> Path | None:
    """Where this run keeps single restarts, beside its records; None for a replay by hand."""
    return lab.path.parent.parent / NAME if lab.path else None


def observe_trial(
    lab: Lesson, plan: TrialPlan, *, args: Callable[[], VllmArgs], price_per_hour: float
) -> ShownTrial | None:
    """Run the trial live, or replay it; None (with the printed reason) where it is unmeasured.

    ``args()`` gives the original's arguments and is called in a live mode only.
    """

    def measure() -> dict[str, Any]:
        folder = trial_folder(lab)
        assert folder is not None  # a live lesson has a path
        options = Options(effort=lab.dials.effort, price_per_hour=price_per_hour)
        with FreshServers(candidate_args(args(), plan.candidates)) as launch:
            rows = run_trial(plan, launch=launch, out=folder, options=options)
        return {"candidates": [asdict(c) for c in plan.candidates], "rows": rows}

    found = lab.observe(NAME, measure)
    return None if found is None else ShownTrial(_read(found), lab.source.label)


def recorded_trial(
    lab: Lesson, *, effort: str = "full", folder: str | Path | None = None
) -> ShownTrial | None:
    """The trial in the notebook's stored record of this effort; None where there is none."""
    path = (Path(folder) if folder else store.records_folder()) / lab.study / f"{effort}.json"
    if not path.is_file():
        return None
    record = store.load(path)
    data = observed(record, NAME)
    if data is None:
        raise RecordError(f"{path.name} of {lab.study} holds no trial")
    return ShownTrial(_read(data), Recorded(record).label)


def _read(data: dict[str, Any]) -> Trial:
    candidates = [Candidate(**{**c, "follows": tuple(c["follows"])}) for c in data["candidates"]]
    return read_trial(data["rows"], candidates)


def release(server: Any) -> None:
    """Stop a server that was borrowed from the pool: from here on the trial's servers run alone."""
    if isinstance(server, VllmServer):
        server.stop()


@contextmanager
def page_folder(lab: Lesson) -> Iterator[Path]:
    """The run's folder for a report; a temporary one where this session has none."""
    if lab.path is not None:
        yield lab.path.parent.parent
        return
    with tempfile.TemporaryDirectory(prefix="turbo-lab-page-") as folder:
        yield Path(folder)
