"""Statistics of traces: against NumPy, against the published numbers, against brute force."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.workload.arrivals import gap_cv
from turbo_lab.workload.trace_reader import read_requests
from turbo_lab.workload.trace_request import TraceRequest
from turbo_lab.workload.trace_stats import PERCENTS, length_summary, trace_statistics

SHARED = repository_root().parent / "shared"
public = pytest.mark.skipif(not SHARED.exists(), reason="the public traces are not here")


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=300))
def test_lengths_agree_with_numpy(values):
    counts = {v: values.count(v) for v in values}
    found = length_summary(counts)
    assert found["mean"] == pytest.approx(np.mean(values))
    for percent in PERCENTS:
        assert found[f"p{percent}"] == pytest.approx(np.percentile(values, percent))


@given(st.lists(st.floats(0, 50), min_size=3, max_size=200))
def test_gaps_and_windows_agree_with_numpy(gaps):
    times = np.concatenate([[0.0], np.cumsum(gaps)])
    found = trace_statistics(TraceRequest(t, 1, 1) for t in times)
    expected = gap_cv(list(times))
    if expected is None:
        assert found["interarrival_cv"] is None
    else:
        assert found["interarrival_cv"] == pytest.approx(expected, rel=1e-6, abs=1e-6)
    windows = np.bincount((times // 10).astype(int))[:-1]  # the last window is cut
    if len(windows) >= 2:
        assert found["dispersion"]["10"] == pytest.approx(windows.var() / windows.mean())


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=6, unique=True), min_size=1))
def test_prefix_hits_agree_with_brute_force(prompts):
    hits = 0
    for index, prompt in enumerate(prompts):
        before = {block for earlier in prompts[:index] for block in earlier}
        run = 0
        while run < len(prompt) and prompt[run] in before:
            run += 1
        hits += run
    requests = [TraceRequest(0.0, 16 * len(p), 1, tuple(p), 16) for p in prompts]
    found = trace_statistics(requests)["ideal_prefix_hit_rate"]
    assert found == pytest.approx(hits / sum(map(len, prompts)))


def test_what_is_not_told_is_none_and_the_result_is_json():
    found = trace_statistics([TraceRequest(0.0, 5, 0)])
    assert found["ideal_prefix_hit_rate"] is None and found["interarrival_cv"] is None
    assert "unmeasured" in found["ideal_prefix_hit_note"]
    assert json.loads(json.dumps(found)) == found
    with pytest.raises(UsageError, match="no requests"):
        trace_statistics([])


@public
def test_the_published_numbers_of_azure():
    told = json.loads((SHARED / "reference/traces.json").read_text())[0]["files"][1]
    found = trace_statistics(read_requests(SHARED / "traces/AzureLLMInferenceTrace_conv.csv"))
    assert found["requests"] == told["rows"]
    assert found["interarrival_cv"] == pytest.approx(told["iat_cv"], abs=0.005)
    for ours, theirs in (("input_tokens", "ctx"), ("output_tokens", "gen")):
        for key, value in told[theirs].items():
            assert found[ours][key] == pytest.approx(value, abs=0.06)


@public
def test_the_prefix_hit_rate_of_mooncake_is_the_published_one():
    found = trace_statistics(read_requests(SHARED / "traces/mooncake_conversation_trace.jsonl"))
    assert found["ideal_prefix_hit_rate"] == pytest.approx(0.366, abs=0.0005)
    assert found["input_tokens"]["mean"] == pytest.approx(12_035, abs=0.5)
    assert found["output_tokens"]["mean"] == pytest.approx(343, abs=0.5)
