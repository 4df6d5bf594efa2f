"""A lesson that measures, and one that replays what it measured."""

from __future__ import annotations

import pytest

from turbo_lab.core.config import Dials
from turbo_lab.course import start_lesson
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.replay import Live
from turbo_lab.records import store


@pytest.fixture(autouse=True)
def dials_from_the_call_only(monkeypatch):
    monkeypatch.delenv("TURBO_LAB_MODE", raising=False)
    monkeypatch.delenv("TURBO_LAB_EFFORT", raising=False)


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TURBO_LAB_RUN_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.fixture
def live(run_folder) -> Lesson:
    return Lesson("01", dials=Dials("cpu", "quick", "a test"), source=Live())


@pytest.fixture
def replayed(live, tmp_path):
    """A live lesson, promoted; call the result to start its replay."""
    live.predict("pool_tokens", 23296, unit="tokens", tolerance=0.0)
    live.predict("ttft_s", 0.5, unit="s", band=(None, 0.6))
    live.measure("pool_tokens", lambda: 23296, unit="tokens")
    live.measure("ttft_s", lambda: {"samples": [0.4, 0.5, 0.7], "lines": ["a"]}, unit="s")
    live.observe("gaps_s", lambda: [0.1, 0.2])
    live.compare()
    store.promote(live.path, study="nb01", folder=tmp_path / "records")
    return lambda **rest: start_lesson("01", mode="replay", records=tmp_path / "records", **rest)
