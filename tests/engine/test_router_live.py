"""A real vllm-router over two real replicas against the simulator: what is found, by counters.

The replicas' caches hold half of the tenants' beginnings. Behind ``cache_aware`` each replica gets
half of the tenants and finds all that was sent before; behind ``round_robin`` each gets all of them
and forgets. Both counts are foretold before anything is sent, with step times calibrated on other
loads. Times are printed and not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from turbo_lab.core.config import resolve_dials
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.router_live import Routed, calibrate_replicas, replica_args, route
from turbo_lab.sim.router_witness import SharedBeginnings, foretell, hit_range, schedule

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.alone]
pytest.importorskip("vllm", reason="needs the cpu environment")

LOAD = SharedBeginnings(seed=4)
VOCAB = 40_000
SHARE = 0.5  # of the fleet's saturation
SPEED = 2.0  # engines up to so many times as fast or slow as calibrated must be within the range
ON, OFF = "cache_aware", "round_robin"


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[VllmServer]]:
    servers = [VllmServer(args) for args in replica_args(default_args(resolve_dials("cpu")), LOAD)]
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_ready()
        yield servers
    finally:
        for server in servers:
            server.stop()


@dataclass
class Trial:
    """One calibration, and both policies foretold and played with it."""

    calibration: Calibration
    times: list[float]
    seen: dict[str, Routed]


@pytest.fixture
def trial(replicas: list[VllmServer], measured_once: Callable[[Callable[[], Any]], Any]) -> Trial:
    def play() -> Trial:
        calibration = calibrate_replicas(replicas)
        times = schedule(LOAD, calibration, share=SHARE)
        told = {p: foretell(LOAD, calibration, times, policy=p) for p in (ON, OFF)}
        seen = {p: route(replicas, LOAD, times, policy=p, vocab=VOCAB) for p in (ON, OFF)}
        for policy, routed in seen.items():
            print(
                f"\n{policy}: hit tokens {routed.hit_tokens}, foretold {told[policy].hit_tokens}; "
                f"by replica {routed.replica_hits}, requests {routed.sent}; TTFT P50 "
                f"{routed.ttft_median_s:.3f} s, "
                f"foretold {told[policy].metrics['ttft'].percentile(50)}"
            )
        return Trial(calibration, times, seen)

    return measured_once(play)


def test_the_caches_have_the_size_that_was_asked_for(trial: Trial) -> None:
    assert trial.calibration.blocks == LOAD.pool_blocks
    assert trial.calibration.block_tokens == LOAD.block_tokens


@pytest.mark.parametrize("policy", [ON, OFF])
def test_all_requests_were_counted_once(trial: Trial, policy: str) -> None:
    routed, count = trial.seen[policy], len(LOAD.order())
    assert sum(routed.sent) == count
    assert routed.prompt_tokens == count * LOAD.prompt_tokens
    assert max(routed.sent) - min(routed.sent) <= count // 4


def test_following_prefixes_finds_clearly_more(trial: Trial) -> None:
    assert trial.seen[ON].hit_tokens > 1.4 * trial.seen[OFF].hit_tokens > 0


@pytest.mark.parametrize("policy", [ON, OFF])
def test_what_is_found_was_foretold(trial: Trial, policy: str) -> None:
    """Within a quarter: where a client or replica stands still, the router counts other loads than
    the schedule's, and a replica gets a tenant more than fits (12 % less was seen).
    """
    least, most = hit_range(LOAD, trial.calibration, trial.times, policy=policy, factor=SPEED)
    assert 0.75 * least <= trial.seen[policy].hit_tokens <= 1.25 * most
