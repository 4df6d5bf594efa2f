"""Requests and the engine's own counters beside them: live, replayed, and honest without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.course import counted as module
from turbo_lab.course import start_lesson
from turbo_lab.course.counted import counted
from turbo_lab.course.lesson import Lesson
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.records import store
from turbo_lab.workload.request import Request


class Counting:
    """A mock whose step counter has two label sets and grows by two per request."""

    def __init__(self, mock: MockServer) -> None:
        self.mock = mock
        self.base_url = mock.base_url

    def metrics(self) -> dict[str, float]:
        seen = float(len(self.mock.log))
        name = module.COUNTERS["steps"]
        return {f'{name}{{engine="0"}}': 10 + seen, f'{name}{{engine="1"}}': seen, "other": 5.0}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    monkeypatch.setattr(module, "SETTLE_S", 0.0)
    good = Reply(speech=Speech(ttft_s=0.01, gap_s=0.002, tokens=3))
    refused = Reply(match="refuse", status=400)
    with MockServer(Script(replies=(good, refused))) as mock:
        yield Counting(mock)


def ask(server: Counting, *prompts: str):
    requests = [Request(p, max_tokens=3) for p in prompts]
    return lambda: run_closed_loop(requests, base_url=server.base_url, concurrency=2)


def test_growth_of_the_counters_and_its_replay(
    lesson: Lesson, server: Counting, tmp_path: Path
) -> None:
    ask(server, "earlier")()
    run = counted(lesson, "run", ask(server, "a", "b", "c"), server=server)
    assert run.count("steps") == 6 and len(run.replies()) == 3 and run.seconds() > 0
    with pytest.raises(UnmeasuredError, match="told no preemptions for run run"):
        run.count("preemptions")
    lesson.compare()
    store.promote(lesson.path, study=lesson.study, folder=tmp_path / "records")
    again = start_lesson(lesson.notebook, mode="replay", records=tmp_path / "records")

    def never():
        raise AssertionError("replay sends nothing")

    shown = counted(again, "run", never, server=None)
    assert shown.count("steps") == 6 and shown.timelines == run.timelines


def test_pauses_between_groups_are_left_out(lesson: Lesson, server: Counting) -> None:
    def groups():
        found = []
        for pair in (("a", "b"), ("c", "d")):
            found += ask(server, *pair)()
            time.sleep(1)
        return found

    run = counted(lesson, "run", groups, server=server)
    assert run.seconds() > 1 > run.seconds(groups_of=2) > 0


def test_failures_are_no_replies(lesson: Lesson, server: Counting) -> None:
    run = counted(lesson, "run", ask(server, "a", "refuse"), server=server)
    assert len(run.timelines) == 2
    with pytest.raises(UnmeasuredError, match="1 of 2 requests failed: HTTP 400"):
        run.replies()
    none = counted(lesson, "none", ask(server, "refuse"), server=server)
    assert none.timelines == [] and none.counts == {}
    with pytest.raises(UnmeasuredError, match="no complete set"):
        none.seconds()
