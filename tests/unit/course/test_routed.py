"""A trial of a router in a lesson: nothing runs twice, and what failed is told once."""

from __future__ import annotations

from typing import Any

import pytest

from turbo_lab.core.errors import EngineError, TurboLabError, UnmeasuredError
from turbo_lab.course import routed
from turbo_lab.course.routed import RouterTrial
from turbo_lab.sim.router_live import Routed
from turbo_lab.sim.router_witness import SharedBeginnings

from ..sim.replica_costs import calibration_for

LOAD = SharedBeginnings(tenants=4, turns=3)
CALIBRATION = calibration_for(LOAD)


class Lab:
    """What a trial needs of a lesson; an error becomes None, as there."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def observe(self, name: str, work: Any) -> Any:
        self.seen.append(name)
        try:
            return work()
        except TurboLabError:
            return None

    def engine(self, start: Any) -> Any:
        try:
            return start()
        except TurboLabError:
            return None


class Server:
    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        routed.router_live, "calibrate_replicas", lambda replicas, rounds: CALIBRATION
    )

    def route(replicas: Any, load: Any, times: Any, *, policy: str, vocab: int) -> Routed:
        if policy == "round_robin":
            raise UnmeasuredError("a request failed")
        return Routed(policy, 3072, 5088, (1536, 1536), (6, 6), (0.2,) * 12, 9.0)

    monkeypatch.setattr(routed.router_live, "route", route)


def test_each_policy_is_sent_once_and_set_beside_the_simulation(live: None) -> None:
    lab, servers = Lab(), [Server(), Server()]
    trial = RouterTrial(lab, LOAD, start=lambda: servers, vocab=900)  # type: ignore[arg-type]
    assert trial.replicas == servers
    assert trial.calibrate(share=0.5) == CALIBRATION
    assert trial.foretold("cache_aware") is trial.foretold("cache_aware")
    assert 0 < trial.tolerance("cache_aware") < trial.tolerance("round_robin") < 1
    rows = trial.rows(("cache_aware", "round_robin"))
    assert rows["cache_aware"]["hit tokens, measured"] == 3072
    assert rows["cache_aware"]["hit tokens, simulated"] == 8 * LOAD.beginning_tokens
    assert rows["cache_aware"]["requests by replica, simulated"] == [6, 6]
    assert set(rows["round_robin"].values()) == {None}
    assert len(trial.first_tokens("cache_aware")["simulated"]) == 12
    assert trial.first_tokens("round_robin") == {"simulated": [], "measured": []}
    assert sorted(lab.seen) == ["replica_calibration", "routed_cache_aware", "routed_round_robin"]
    trial.close()
    assert [server.stopped for server in servers] == [1, 1]


def test_replicas_that_do_not_start_are_tried_once_and_all_is_unmeasured(live: None) -> None:
    tries: list[int] = []

    def fail() -> list[Server]:
        tries.append(1)
        raise EngineError("no memory")

    lab = Lab()
    trial = RouterTrial(lab, LOAD, start=fail, vocab=900)  # type: ignore[arg-type]
    assert trial.replicas == [None, None] and tries == [1]
    monkey = trial._lab.observe
    trial._lab.observe = lambda name, work: None  # type: ignore[method-assign]
    assert trial.calibrate(share=0.5) is None
    trial._lab.observe = monkey  # type: ignore[method-assign]
    with pytest.raises(UnmeasuredError, match="not calibrated"):
        trial.foretold("cache_aware")
    with pytest.raises(UnmeasuredError, match="was not run"):
        trial.sent("cache_aware")
    assert 0 < trial.tolerance("cache_aware") < 1
    trial.close()
