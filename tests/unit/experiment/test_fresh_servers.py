"""Servers of a trial: started in rounds, each for one run, none left behind."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import EngineError
from turbo_lab.engines import pool
from turbo_lab.engines.args import VllmArgs
from turbo_lab.experiment.launch import FreshServers

ARGS = {name: VllmArgs(model=name) for name in ("plain", "guessing", "quantised")}


class Stand:
    """A server that notes what happens to it; ``bad`` never gets ready."""

    def __init__(self, args: VllmArgs, log: list[tuple[str, str]]) -> None:
        self.model_name, self.base_url, self.log = args.model, f"http://{args.model}", log

    def start(self) -> None:
        self.log.append(("start", self.model_name))

    def wait_ready(self) -> None:
        self.log.append(("ready", self.model_name))
        if self.model_name == "bad":
            raise EngineError("out of memory")

    def stop(self) -> None:
        self.log.append(("stop", self.model_name))


@pytest.fixture
def log() -> list[tuple[str, str]]:
    return []


def fresh(log: list[tuple[str, str]], args: dict[str, VllmArgs] = ARGS) -> FreshServers:
    return FreshServers(args, server=lambda one: Stand(one, log))


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "has_room", lambda wanted: True)


def test_a_round_starts_together_is_ready_before_the_run_and_each_server_answers_once(
    log: list[tuple[str, str]],
) -> None:
    with fresh(log) as launch:
        for number, order in enumerate((list(ARGS), list(ARGS)[::-1])):
            for name in order:
                with launch(name) as launched:
                    assert (launched.base_url, launched.model) == (f"http://{name}", name)
                    begun = [what for what in log if what[0] == "start"]
                    assert len(begun) == 3 * (number + 1)
                    assert {n for what, n in log if what == "ready"} == set(ARGS)
    for what in ("start", "stop"):
        assert sorted(n for w, n in log if w == what) == sorted(2 * list(ARGS))


def test_what_no_run_asked_for_is_ended_also_when_a_run_fails(log: list[tuple[str, str]]) -> None:
    with pytest.raises(KeyboardInterrupt), fresh(log) as launch, launch("plain"):
        raise KeyboardInterrupt
    assert {n for what, n in log if what == "stop"} == set(ARGS)


def test_a_server_that_fails_waiting_is_told_by_its_own_run(log: list[tuple[str, str]]) -> None:
    args = {"plain": VllmArgs(model="plain"), "bad": VllmArgs(model="bad")}
    with fresh(log, args) as launch:
        with launch("plain"):
            assert ("stop", "bad") in log
        with pytest.raises(EngineError, match="out of memory"), launch("bad"):
            pass
    assert log.count(("start", "bad")) == log.count(("stop", "bad")) == 2


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_without_room_or_on_a_gpu_each_starts_when_it_is_asked_for(
    log: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(pool, "has_room", lambda wanted: device == "gpu")
    args = {name: VllmArgs(model=name, device=device) for name in "ab"}
    with fresh(log, args) as launch:
        with launch("b"):
            assert log == [("start", "b"), ("ready", "b")]
        with launch("a"):
            assert log[2:] == [("stop", "b"), ("start", "a"), ("ready", "a")]
