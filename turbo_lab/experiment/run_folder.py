"""The folder of one run: a journal of requests that survives every end, and its record.

``requests.jsonl``: a header, then one row per finished request, then nothing or more sessions. A
later session may begin with the numbers of requests that it measures anew.
``resources.jsonl``: samples beside it. ``record.json``: written at the end, whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.experiment.secrets import without_key
from turbo_lab.metrics.timeline import Chunk, ChunkRun, Timeline
from turbo_lab.records.journal import Journal, read_rows

REQUESTS_NAME, RESOURCES_NAME, RECORD_NAME = "requests.jsonl", "resources.jsonl", "record.json"
REPORT_NAME = "report.html"
# A request that got no answer because the server was gone is sent again on resume.
LOST = ("cannot connect", "no connection within", "the connection broke")


@dataclass(frozen=True)
class Session:
    """One stretch of work on a run; ``end`` says how it ended, None when it was killed."""

    started_at: str
    end: str | None


@dataclass(frozen=True)
class SavedRun:
    """What a run folder holds, sessions put on one time axis.

    ``timelines`` maps a request's number to its last attempt; ``lost`` counts attempts that died
    with the server and were sent again or are still missing; ``restarted`` counts turns of
    interrupted conversations that were measured and asked anew.
    """

    header: Mapping[str, Any]
    timelines: Mapping[int, Timeline]
    sessions: tuple[Session, ...]
    lost: int
    restarted: int = 0

    @property
    def plan(self) -> BenchPlan:
        """The plan that was begun."""
        return BenchPlan.from_dict(self.header["plan"])

    def missing(self) -> list[int]:
        """Numbers of requests without a result, those that died with the server included.

        A conversation that broke off is missing as a whole: the server's cache, which its later
        turns measure, may be gone, and its replies may differ.
        """
        turns = self.plan.workload.turns
        done = {i for i, t in self.timelines.items() if not is_lost(t)}
        gaps = {i // turns for i in range(self.plan.requests) if i not in done}
        return [i for i in range(self.plan.requests) if i // turns in gaps]

    def stale(self) -> list[int]:
        """Numbers of missing requests that have a result all the same: to be measured anew."""
        return [i for i in self.missing() if i in self.timelines and not is_lost(self.timelines[i])]

    def ordered(self) -> list[Timeline]:
        """All timelines, in the order of the requests."""
        return [self.timelines[i] for i in sorted(self.timelines)]


def is_lost(timeline: Timeline) -> bool:
    """Whether a request got no answer at all because the server was gone."""
    return timeline.status_code is None and (timeline.error or "").startswith(LOST)


def request_row(index: int, timeline: Timeline) -> dict[str, Any]:
    """The journal's row of one finished request, without the API key should a server echo it."""
    return {"kind": "request", "index": index, "timeline": without_key(timeline).to_dict()}


def begin(folder: Path, header: Mapping[str, Any]) -> Journal:
    """Open the journal of a new run; of two that begin at once in one folder only one may.

    Raises UsageError where a run lies already, RecordError where the disk refuses the first line
    (nothing stays behind then).
    """
    path = folder / REQUESTS_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)
    except FileExistsError:
        raise UsageError(
            f"{folder} already holds a run. Give another --out, or continue that run with --resume"
        ) from None
    except OSError as error:
        raise RecordError(f"{path} could not be made: {error.strerror or error}.") from error
    try:
        journal = Journal(path)
        journal.append({"kind": "header", **header})
        journal.sync()
    except RecordError:
        path.unlink(missing_ok=True)
        raise
    return journal


def load_run(folder: str | Path) -> SavedRun:
    """Everything that was measured in a run folder, however the run ended.

    Raises RecordError when there is no run or its journal is damaged in the middle.
    """
    return read_run(Path(folder) / REQUESTS_NAME)


def read_run(path: Path) -> SavedRun:
    """The same from the journal itself, whatever its name. Raises RecordError."""
    rows = read_rows(path)
    if not rows or rows[0].get("kind") != "header":
        raise RecordError(f"{path} holds no run: its first line is missing.")
    try:
        return _saved(rows)
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path} holds a row that no run writes: {error!r}.") from error


def _saved(rows: Sequence[Mapping[str, Any]]) -> SavedRun:
    timelines: dict[int, Timeline] = {}
    sessions: list[Session] = []
    lost, restarted, end_s, shift_s = 0, 0, 0.0, 0.0
    for row in rows[1:]:
        kind = row.get("kind")
        if kind == "session":
            # Later sessions are laid behind the earlier ones: their clocks may differ.
            shift_s = end_s - row["clock_s"] if timelines else 0.0
            sessions.append(Session(row["started_at"], None))
        elif kind == "end" and sessions:
            sessions[-1] = replace(sessions[-1], end=row["how"])
        elif kind == "anew":
            stale = [timelines.pop(i) for i in row["indexes"] if i in timelines]
            restarted += sum(t.sent_s is not None for t in stale)
        elif kind == "request":
            timeline = shifted(Timeline.from_dict(row["timeline"]), shift_s)
            end_s = max(end_s, timeline.closed_s or 0.0)
            lost += is_lost(timeline)
            timelines[row["index"]] = timeline
    return SavedRun(rows[0], timelines, tuple(sessions), lost, restarted)


def shifted(timeline: Timeline, by_s: float) -> Timeline:
    """The same timeline, all its times moved by ``by_s``."""
    if not by_s:
        return timeline

    def move(value: float | None) -> float | None:
        return None if value is None else value + by_s

    chunks: Sequence[Chunk | ChunkRun] = [
        c._replace(first_s=c.first_s + by_s)
        if isinstance(c, ChunkRun)
        else c._replace(t_s=c.t_s + by_s)
        for c in timeline.chunks
    ]
    return replace(
        timeline,
        scheduled_s=move(timeline.scheduled_s),
        sent_s=move(timeline.sent_s),
        connected_s=move(timeline.connected_s),
        closed_s=move(timeline.closed_s),
        chunks=tuple(chunks),
        attempts=tuple(
            a._replace(sent_s=a.sent_s + by_s, closed_s=a.closed_s + by_s)
            for a in timeline.attempts
        ),
    )
