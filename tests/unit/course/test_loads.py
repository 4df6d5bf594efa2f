"""A run and the server's account of it: live, replayed, and honest where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.course import start_lesson
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.loads import Load, closed_loop, per_run, pooled
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.engines.request_times import HISTOGRAMS
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records import store
from turbo_lab.workload.request import Request


class Accountant:
    """A mock server that also keeps vLLM's histograms, from its own log of requests."""

    def __init__(self, mock: MockServer, *, blind: bool = False) -> None:
        self.mock, self.blind = mock, blind

    @property
    def base_url(self) -> str:
        return self.mock.base_url

    def metrics(self) -> dict[str, float]:
        count = 0 if self.blind else len(self.mock.log)
        sums = {f"{h}_sum": 0.001 * count for h in HISTOGRAMS.values()}
        return {**sums, **{f"{h}_count": float(count) for h in HISTOGRAMS.values()}}


@pytest.fixture
def server() -> Iterator[Accountant]:
    speech = Speech(ttft_s=0.01, gap_s=0.1, tokens=3)  # long beside a busy machine's delays
    with MockServer(Script(replies=(Reply(speech=speech),), slots=2)) as mock:
        yield Accountant(mock)


def six() -> list[Request]:
    return [Request(f"prompt {i}", max_tokens=3) for i in range(6)]


def test_row_and_parts_of_a_run(lesson: Lesson, server: Accountant) -> None:
    load = closed_loop(lesson, "run", six, server=server, concurrency=2)
    row = load.row()
    assert (row["output [tokens]"], row["concurrency"]) == (3.0, 2)
    assert row["input [tokens]"] == 2.0 and row["TTFT P50 [s]"] > 0.01
    assert load.times is not None and load.times.requests == 6
    assert sum(load.parts_s().values()) == pytest.approx(load.summary().e2e_s.mean)
    assert per_run([load, load])["TPOT"][0] == load.summary().tpot_s.median
    assert len(pooled([load, load], "e2e_s")) == 12


def test_a_full_server_has_late_starters(lesson: Lesson, server: Accountant) -> None:
    """Two seats, six at once: four must wait for an end."""
    assert closed_loop(lesson, "run", six, server=server, concurrency=6).late_starters() == 4


def test_replay_gives_the_same_and_asks_nobody(
    lesson: Lesson, server: Accountant, tmp_path: Path
) -> None:
    live = closed_loop(lesson, "run", six, server=server, concurrency=2)
    lesson.compare()
    assert lesson.path is not None
    store.promote(lesson.path, study=lesson.study, folder=tmp_path / "records")
    again = start_lesson(lesson.notebook, mode="replay", records=tmp_path / "records")

    def never() -> Any:
        raise AssertionError("requests were made in replay")

    replayed = closed_loop(again, "run", never, server=None, concurrency=2)
    assert replayed.times == live.times and replayed.row() == live.row()


def test_a_server_that_cannot_be_reached_leaves_no_number(
    lesson: Lesson, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone:
        base_url = "http://127.0.0.1:9"

        def metrics(self) -> dict[str, float]:
            raise UnmeasuredError("no engine runs here")

    load = closed_loop(lesson, "run", six, server=Gone(), concurrency=2)
    assert load.timelines == [] and load.times is None
    assert load.row()["TTFT P50 [s]"] is None
    assert "no engine runs here" in capsys.readouterr().out
    for ask in (load.parts_s, load.late_starters):
        with pytest.raises(UnmeasuredError):
            ask()


def test_an_account_that_does_not_fit_is_left_out(
    lesson: Lesson, server: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.blind = True
    monkeypatch.setattr("turbo_lab.course.loads.COUNTING_PATIENCE_S", 0.1)
    load = closed_loop(lesson, "run", six, server=server, concurrency=2)
    assert len(load.timelines) == 6 and load.times is None
    with pytest.raises(UnmeasuredError, match="no account of run run"):
        load.parts_s()


def test_silent_replies_have_no_order() -> None:
    runs = [Timeline(sent_s=0.0, status_code=500, closed_s=1.0)]
    with pytest.raises(UnmeasuredError, match="0 of 1 requests were answered"):
        Load("x", 1, runs, None).late_starters()
