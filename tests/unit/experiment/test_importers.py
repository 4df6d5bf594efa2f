"""Result files as the tools write them (shortened), and everything that is not one."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.errors import RecordError, TurboLabError, UsageError
from turbo_lab.experiment.arms import Arm, observed
from turbo_lab.experiment.compare import compare
from turbo_lab.experiment.importers import import_file

VLLM = {
    "date": "20261130-030240", "backend": "openai-chat", "model_id": "mock", "num_prompts": 3,
    "request_rate": 10.0, "burstiness": 1.0, "max_concurrency": None, "duration": 0.65,
    "completed": 2, "failed": 1, "request_throughput": 3.1, "request_goodput": None,
    "output_throughput": 12.3, "input_lens": [7, 8, 9], "output_lens": [4, 3, 0],
    "ttfts": [0.0217, 0.0219, 0.0], "itls": [[0.0, 0.0099, 0.01], [0.0098, 0.0102], []],
    "latencies": [0.0517, 0.0419, 0.0], "errors": ["", "", "Traceback\nClientError: 503"],
    "mean_ttft_ms": 21.8, "median_ttft_ms": 21.8, "p99_ttft_ms": 21.9, "median_tpot_ms": 10.0,
}  # fmt: skip


def guide_stats(value: float) -> dict:
    percentiles = {"p50": value, "p90": value, "p95": value, "p99": value}
    return {"successful": {"mean": value, "median": value, "percentiles": percentiles}}


GUIDELLM = {
    "metadata": {"version": 2, "guidellm_version": "0.8.1"},
    "config": {"spec": {"backend": {"model": "mock"}}},
    "benchmarks": [
        {
            "config": {"strategy": {"type_": "constant", "rate": 10.0, "max_concurrency": 1024}},
            "metrics": {
                "request_totals": {"successful": 2, "errored": 0, "incomplete": 0, "total": 2},
                "time_to_first_token_ms": guide_stats(22.0),
                "output_tokens_per_second": {"successful": {"mean": 44.0}},
            },
            "requests": {
                "successful": [
                    {"time_to_first_token_ms": 21.0, "time_per_output_token_ms": 13.0,
                     "inter_token_latency_ms": 9.8, "request_latency": 0.053},
                    {"time_to_first_token_ms": 23.0, "time_per_output_token_ms": 13.2,
                     "inter_token_latency_ms": None, "request_latency": 0.055},
                ],
                "errored": [], "incomplete": [],
            },
        }
    ],
}  # fmt: skip
AIPERF = {
    "schema_version": "1.4", "aiperf_version": "0.13.0",
    "request_throughput": {"unit": "requests/sec", "avg": 11.7},
    "request_latency": {"unit": "ms", "avg": 52.0, "p50": 51.7, "p99": 53.6, "min": 51.1},
    "request_count": {"unit": "requests", "avg": 6.0},
    "time_to_first_token": {"unit": "ms", "avg": 21.9, "p50": 21.7, "p99": 23.6},
    "inter_token_latency": {"unit": "ms", "avg": 10.0, "p50": 10.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 47.0},
    "error_summary": [{"error_details": {"code": 503, "message": "busy"}, "count": 2}],
}  # fmt: skip
AIPERF_ROWS = [
    {"metadata": {}, "metrics": {"time_to_first_token": {"value": 21.0, "unit": "ms"},
                                 "request_latency": {"value": 0.05, "unit": "s"}}, "error": None},
    {"metadata": {}, "metrics": {}, "error": {"code": 500, "message": "oops"}},
]  # fmt: skip


@pytest.fixture
def load(tmp_path):
    def run(content, tool, name="result.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return import_file(path, tool=tool)

    return run


def metric(record, name):
    return next(m for m in record.measurements if m.name == name)


def test_vllm_by_request_leaves_failed_ones_out_and_names_them(load):
    record = load(VLLM, "vllm")
    assert metric(record, "ttft_s").samples == (0.0217, 0.0219)
    assert metric(record, "tpot_s").samples == pytest.approx((0.01, 0.01))
    assert len(metric(record, "itl_s").samples) == 5
    assert metric(record, "ttft_s").definition.startswith("vllm-0.32: send to first chunk")
    assert record.gates[0].passed is False and "ClientError: 503" in record.gates[0].detail
    assert observed(record, "statistics")["ttft_s"]["p99"] == pytest.approx(0.0219)


def test_vllm_summary_only(load):
    plain = {k: v for k, v in VLLM.items() if k not in ("ttfts", "itls", "errors")}
    record = load(plain, "vllm")
    assert metric(record, "ttft_s").samples == (pytest.approx(0.0218),)
    assert record.gates[0].passed is False


def test_guidellm_keeps_its_own_tpot(load):
    record = load(GUIDELLM, "guidellm")
    assert metric(record, "ttft_s").samples == pytest.approx((0.021, 0.023))
    assert "TTFT included" in metric(record, "tpot_s").definition
    assert metric(record, "itl_s").samples == pytest.approx((0.0098,))
    assert metric(record, "e2e_s").value == pytest.approx(0.054)
    assert metric(record, "output_rate_tok_s").value == 44.0
    assert record.gates[0].passed is True and record.variables["strategy"].startswith("constant")


def test_guidellm_sweeps_are_not_mixed(load):
    two = {**GUIDELLM, "benchmarks": GUIDELLM["benchmarks"] * 2}
    with pytest.raises(RecordError, match="2 benchmarks"):
        load(two, "guidellm")


def test_aiperf_summary_and_records(load):
    record = load(AIPERF, "aiperf")
    assert metric(record, "e2e_s").value == pytest.approx(0.0517)
    assert record.gates[0].passed is False and "2 x 503 busy" in record.gates[0].detail
    rows = "\n".join(map(json.dumps, AIPERF_ROWS)) + '\n{"metadata": {}, "met'
    record = load(rows, "aiperf", "profile_export.jsonl")
    assert metric(record, "ttft_s").samples == pytest.approx((0.021,))
    assert metric(record, "e2e_s").samples == pytest.approx((0.05,))
    assert "1 x 500 oops" in record.gates[0].detail


def test_unlike_metrics_are_refused_and_like_ones_compared(load, tmp_path):
    vllm, guide = load(VLLM, "vllm"), load(GUIDELLM, "guidellm")
    with pytest.raises(TurboLabError, match="Unlike metrics are not put side by side"):
        compare(Arm("v", (vllm,)), Arm("g", (guide,)), declared=None, metric="tpot",
                folder=tmp_path)  # fmt: skip
    many = {**GUIDELLM, "benchmarks": [json.loads(json.dumps(GUIDELLM["benchmarks"][0]))]}
    many["benchmarks"][0]["requests"]["successful"] *= 10
    same = load(many, "guidellm")
    found = compare(Arm("g", (same,)), Arm("h", (same,)), declared=None, metric="ttft",
                    folder=tmp_path)  # fmt: skip
    assert found.verdict == "no difference shown"


def test_all_failed_is_no_data(load):
    dead = {**VLLM, "completed": 0, "failed": 3, "ttfts": [0.0] * 3, "errors": ["x"] * 3}
    record = load(dead, "vllm")
    assert metric(record, "ttft_s").value is None and metric(record, "ttft_s").samples == ()
    assert "no data" in metric(record, "ttft_s").reason


@pytest.mark.parametrize("tool", ["vllm", "guidellm", "aiperf"])
@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"benchmarks": []}', '{"a": 1}', "[1, 2]", "null", "x\ny"]
)
def test_what_is_no_result_is_refused_with_the_file_name(load, tool, content):
    with pytest.raises(RecordError, match=r"result\.json"):
        load(content, tool)


@pytest.mark.parametrize("tool", ["vllm", "guidellm", "aiperf"])
def test_a_damaged_result_is_refused(load, tool):
    base = {"vllm": VLLM, "guidellm": GUIDELLM, "aiperf": AIPERF}[tool]
    with pytest.raises(RecordError):
        load(json.dumps(base)[:-40], tool)


def test_another_tools_file_and_an_unknown_tool(load, tmp_path):
    with pytest.raises(RecordError, match="not a `vllm bench serve` result"):
        load(GUIDELLM, "vllm")
    with pytest.raises(UsageError, match="Did you mean 'vllm'"):
        load(VLLM, "vlm")
    with pytest.raises(RecordError, match="cannot be read"):
        import_file(tmp_path / "absent.json", tool="vllm")
