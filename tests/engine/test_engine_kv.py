"""vLLM's fp8 cache on this machine: the predicted pool to the token, or the engine's own words."""

from __future__ import annotations

import pytest

from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.experiment.quality_prompts import load_prompts
from turbo_lab.precision.engine_kv import predicted_pool_tokens, serve_with
from turbo_lab.precision.engine_kv_script import run_script

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.alone]


@pytest.fixture(scope="module")
def args() -> VllmArgs:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    return VllmArgs.make(model=local_model.resolve_model(), dtype="float32")


def test_fp8_serves_with_the_predicted_pool_or_says_why_not(args: VllmArgs) -> None:
    found = serve_with(args, "fp8_e5m2", prompts=load_prompts(["facts"], per_kind=5))
    if found.reason:
        assert "AVX-512" in found.reason
        return
    assert found.as_predicted and found.tpot_s
    assert len(found.replies) == 5 and all(r.text for r in found.replies)


def test_a_format_that_the_backend_lacks_does_not_pass_unnoticed(args: VllmArgs) -> None:
    """On CPU the release starts with it, lays out one byte per value and answers nonsense."""
    found = run_script(args, kv_dtype="int4_per_token_head", max_tokens=16)
    predicted = predicted_pool_tokens(args.replace(kv_cache_dtype="int4_per_token_head"))
    assert found.reason or found.pool_tokens != predicted
