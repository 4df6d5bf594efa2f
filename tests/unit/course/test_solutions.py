"""Where a solution overlaps with the package, both must give the same numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.checks import nb01 as checks01
from turbo_lab.course.checks import nb03 as checks03
from turbo_lab.course.solutions import nb01, nb03
from turbo_lab.metrics import definitions, percentiles
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import Timeline

samples = st.lists(st.floats(0, 1e3), min_size=1, max_size=50)


@given(samples, st.floats(0, 100))
def test_percentile_is_the_packages(values, p):
    assert nb03.percentile(values, p) == percentiles.percentile(values, p)


@given(samples, st.floats(0, 100))
def test_percentile_is_numpys(values, p):
    numpy = pytest.importorskip("numpy")
    assert math.isclose(nb03.percentile(values, p), numpy.percentile(values, p), abs_tol=1e-9)


@pytest.mark.parametrize("p", [50, 75, 90, 95, 99])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_certifying_sample_sizes_are_the_packages(p, confidence):
    expected = percentiles.samples_to_certify(p, confidence=confidence)
    assert nb03.samples_to_certify(p, confidence) == expected


def timeline(chunks, tokens):
    rows = [[t, n, "content" if text else "role"] for t, text, n in chunks]
    return Timeline.from_dict(
        {"request_id": "r", "scheduled_s": 0.0, "sent_s": 0.0, "connected_s": 0.0,
         "status_code": 200, "chunks": rows, "finish_reason": "stop", "saw_done": True,
         "usage": {"completion_tokens": tokens}, "closed_s": 0.3, "error": None}
    )  # fmt: skip


@pytest.mark.parametrize("one", checks03.EXERCISES[2].cases, ids=str)
def test_first_token_and_pace_are_the_packages(one):
    chunks, tokens = one.args
    line = timeline(chunks, tokens)
    expected = definitions.ttft_s(line), definitions.tpot_s(line)
    assert nb03.ttft_and_tpot(chunks, tokens) == pytest.approx(expected)


def _steady(tokens, pace):
    return timeline([(0.1 + k * pace, "x", 1) for k in range(tokens)], tokens)


def test_the_three_means_are_those_of_the_summary():
    """A: 5 tokens at 200 ms, B: 20 tokens at 100 ms, one token per chunk."""
    lines = [
        Timeline.from_dict(_steady(n, pace).to_dict() | {"closed_s": 9.0, "request_id": f"r{n}"})
        for n, pace in ((5, 0.2), (20, 0.1))
    ]
    by_request, by_gap, _ = nb03.three_means([(5, 0.2), (20, 0.1)])
    summary = summarize(lines)
    assert summary["tpot_s"].mean == pytest.approx(by_request)
    assert summary["itl_s"].mean == pytest.approx(by_gap)


def spec_of(config):
    spec = pytest.importorskip("turbo_lab.models.spec")
    known = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000,
             "intermediate_size": 4096, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
             "max_position_embeddings": 8192}  # fmt: skip
    return spec.from_hf_config(known | config)


@pytest.mark.parametrize("one", checks01.EXERCISES[1].cases, ids=str)
def test_bytes_per_token_are_the_packages(one):
    memory = pytest.importorskip("turbo_lab.models.memory")
    assert nb01.kv_bytes_per_token(one.args[0]) == memory.kv_bytes_per_token(spec_of(one.args[0]))


def test_the_sources_example_is_the_packages():
    memory = pytest.importorskip("turbo_lab.models.memory")
    spec = spec_of(checks01.LLAMA_8B)
    size = memory.kv_cache_bytes(spec, batch=8, context_tokens=4096)
    assert nb01.kv_cache_gib(8, 4096, 32, 8, 128, 2) == size / 2**30 == 4.0


@given(pool=st.integers(0, 10**12), each=st.integers(1, 10**6), block=st.sampled_from([1, 16, 128]))
def test_a_pool_is_whole_blocks_and_the_next_would_not_fit(pool, each, block):
    tokens = nb01.pool_tokens(pool, each, block)
    assert tokens % block == 0
    assert tokens * each <= pool < (tokens + block) * each


@given(st.integers(1, 10**6), st.sampled_from([16, 128]), st.integers(1, 10**5))
def test_concurrency_lies_between_its_bounds(blocks, block, request):
    value = nb01.concurrency(blocks * block, block, request)
    assert value <= blocks * block / request
    assert value >= blocks * block / (request + block)


@given(st.lists(st.floats(0.001, 2), max_size=20), st.floats(0.01, 1))
def test_waiting_is_never_shorter_than_serving(service, interval):
    latencies = nb03.latencies_from_schedule(service, interval)
    assert all(a >= b - 1e-9 for a, b in zip(latencies, service, strict=True))
