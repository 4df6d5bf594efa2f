"""Steps read over HTTP, against the notes of the server that made them."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.errors import EngineError
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.estimate.points import PromptSource
from turbo_lab.sim.calibration_limits import engine_limits
from turbo_lab.sim.calibration_loads import calibration_loads
from turbo_lab.sim.calibration_steps import step_samples

MOCK_METRICS = {'vllm:cache_config_info{block_size="128",num_gpu_blocks="182"}': 1.0}


def test_a_server_of_another_kind_is_told(monkeypatch):
    for body in (b"<html>", b"[]", b'{"data": []}', b"{}"):
        monkeypatch.setattr(
            "turbo_lab.sim.calibration_limits.http_get", lambda *_, answer=body: (200, answer)
        )
        with pytest.raises(EngineError, match="is it a vLLM server"):
            engine_limits("http://127.0.0.1:9")


@pytest.mark.alone
def test_steps_of_a_live_server_are_those_it_noted_itself():
    """Over HTTP, against the server's own notes of when each token left: medians, in one run."""
    speech = Speech(ttft_s=0.02, gap_s=0.05, prefill_s_per_word=1e-4)
    script = Script(replies=(Reply(speech=speech),), extra_metrics=MOCK_METRICS)
    prompts = PromptSource(vocab=32_000, longest=1024)
    with MockServer(script) as server:
        limits = engine_limits(server.base_url, max_batched_tokens=2048, max_sequences=2)
        load = next(iter(calibration_loads(limits, prompts=prompts, seed=0)))
        chosen = load.requests[:3]
        samples = step_samples(run_closed_loop(chosen, base_url=server.base_url, concurrency=1))
        noted = [entry.content_s() for entry in server.log]
        waits = [entry.content_s()[0] - entry.received_s for entry in server.log]
    assert (limits.blocks, limits.block_tokens) == (181, 128)
    gaps = [b - a for times in noted for a, b in pairwise(times)]
    decode = [s.seconds for s in samples if not s.alone]
    alone = [s.seconds for s in samples if s.alone]
    assert len(decode) > len(gaps) / 3 and alone
    assert median(decode) == pytest.approx(median(gaps), abs=0.02)
    assert median(alone) == pytest.approx(median(waits), abs=0.03)
