"""The simulator, calibrated on a live vLLM, against the same server under loads it has not seen.

Calibration and loads take turns, so that both see the same machine. The aims of the study are TTFT
15 %, TPOT 10 %, throughput and makespan 5 %; they are printed. The bounds here are wider, about
twice what was seen on two cores, or what two equal runs of the server differ by where that is more:
no error below it can be shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turbo_lab.core.config import resolve_dials
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.validation import AIMS, Validation
from turbo_lab.sim.validation_live import validate_server

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.alone]
pytest.importorskip("vllm", reason="needs the cpu environment")

BOUNDS = {"ttft": 0.40, "tpot": 0.20, "throughput": 0.10, "makespan": 0.16}


Seen = tuple[Calibration, Validation, VllmServer]


@pytest.fixture
def seen(measured_once: Callable[[Callable[[], Any]], Any]) -> Seen:
    return measured_once(validate_live)


def validate_live() -> Seen:
    """A fresh server, calibrated and put under the loads in turn."""
    args = default_args(resolve_dials("cpu"), kv_cache_gib=1)
    with VllmServer(args) as server:
        server.wait_ready()
        calibration, validation = validate_server(
            server.base_url, name="live", passes=2, requests=48
        )
        print(f"\n{validation}")
        assert calibration.blocks * calibration.block_tokens <= server.kv_cache_tokens()
        assert server.kv_cache_tokens() - calibration.blocks * calibration.block_tokens <= (
            calibration.block_tokens
        )
    return calibration, validation, server


def test_the_calibration_knows_the_limits_and_its_own_errors(seen: Seen) -> None:
    calibration, _, server = seen
    assert calibration.max_sequences == server.args.max_num_seqs
    assert calibration.max_batched_tokens >= server.args.max_model_len
    assert calibration.fixed_s > 0 and calibration.prefill_token_s > 0
    told = calibration.evidence
    print({key: told[key] for key in ("fitted", "held_out", "disturbed", "rounds")})
    assert told["held_out"]["calm_median"] < 0.25


@pytest.mark.parametrize("name", AIMS)
def test_loads_that_were_not_calibrated_on_are_foretold(seen: Seen, name: str) -> None:
    _, validation, _ = seen
    error, noise = validation.error(name), validation.noise(name)
    print(f"{name}: error {error:.1%}, aim {AIMS[name]:.0%}, noise {noise:.1%}")
    assert error <= max(BOUNDS[name], noise)
