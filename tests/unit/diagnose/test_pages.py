"""Rules over ``/metrics`` pages, of one server, of several, and between two readings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import RecordError
from turbo_lab.diagnose.page_rules import DEFAULT_LIMITS, Limits, page_findings, replica_findings
from turbo_lab.diagnose.page_rules import difference as between
from turbo_lab.diagnose.pages import looks_like_page, parse_page


def page(*rows: str, source: str = "page"):
    return parse_page("\n".join(rows), source=source)


def causes(*rows: str, limits: Limits = DEFAULT_LIMITS) -> set[str]:
    return {finding.cause for finding in page_findings(page(*rows), limits=limits)}


def mean(name: str, value: float, count: int = 100) -> tuple[str, str]:
    return f"vllm:{name}_seconds_sum {value * count}", f"vllm:{name}_seconds_count {count}"


@given(waiting=st.integers(0, 500), running=st.integers(0, 256))
def test_the_queue_is_under_pressure_exactly_from_its_limit(waiting, running):
    found = causes(f"vllm:num_requests_waiting {waiting}", f"vllm:num_requests_running {running}")
    assert ("queue_pressure" in found) == (waiting >= max(4, running / 2))


@given(share=st.floats(0, 1))
def test_the_kv_pool_is_full_exactly_from_its_limit_under_both_names(share):
    for name in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
        assert ("kv_pressure" in causes(f"{name} {share}")) == (share >= 0.95)


def test_a_queue_that_is_empty_now_shows_in_the_times():
    rows = (*mean("request_queue_time", 2.0), *mean("e2e_request_latency", 5.0))
    assert "queue_pressure" in causes("vllm:num_requests_waiting 0", *rows)


def test_ttft_and_tpot_are_told_apart_and_limits_can_be_moved():
    slow_start = (*mean("time_to_first_token", 4.0), *mean("e2e_request_latency", 5.0))
    slow_flow = (
        *mean("time_to_first_token", 0.2), *mean("e2e_request_latency", 30.0),
        *mean("inter_token_latency", 0.3),
    )  # fmt: skip
    assert causes(*slow_start) == {"ttft_bound"}
    assert causes(*slow_flow) == {"tpot_bound"}
    assert causes(*slow_flow, limits=Limits(tpot_s=0.5)) == set()


def test_imbalance_within_a_page_and_between_pages():
    skewed = [f'vllm:num_requests_running{{engine="{e}"}} {n}' for e, n in enumerate((30, 2, 3))]
    assert "replica_imbalance" in causes(*skewed)
    pages = [page(f"vllm:num_requests_running {n}", source=f"s{n}") for n in (25, 3)]
    (finding,) = replica_findings(pages)
    assert finding.cause == "replica_imbalance" and "s25" in finding.evidence
    assert replica_findings(pages[:1]) == []
    assert replica_findings([page("vllm:num_requests_running 5", source=s) for s in "ab"]) == []


def test_an_idle_replica_beside_two_lone_requests_is_no_imbalance():
    rows = [f'vllm:num_requests_running{{engine="{e}"}} {n}' for e, n in enumerate((2, 0))]
    assert causes(*rows) == set()


def test_a_cold_start_is_one_slow_first_token_among_many():
    def histogram(*counts: int) -> list[str]:
        edges, total, rows = ("0.1", "0.5", "5.0", "+Inf"), 0, []
        for edge, count in zip(edges, counts, strict=True):
            total += count
            rows.append(f'vllm:time_to_first_token_seconds_bucket{{le="{edge}"}} {total}')
        return rows

    assert "cold_start" in causes(*histogram(40, 0, 1, 0))
    assert "cold_start" not in causes(*histogram(40, 1, 0, 0))
    assert "cold_start" not in causes(*histogram(20, 0, 20, 0))
    assert "cold_start" not in causes(*histogram(3, 0, 1, 0))


def test_the_difference_of_two_readings_forgets_the_past_and_survives_a_restart():
    old = page("vllm:num_preemptions_total 500", "vllm:num_requests_running 9",
               'vllm:request_success_total{finished_reason="stop"} 900')  # fmt: skip
    new = page("vllm:num_preemptions_total 500", "vllm:num_requests_running 2",
               'vllm:request_success_total{finished_reason="stop"} 950')  # fmt: skip
    change = between(old, new)
    assert change.total("preemptions") == 0 and change.total("finished") == 50
    assert change.total("running") == 2
    assert "preemption_pressure" in {f.cause for f in page_findings(old)}
    assert page_findings(change) == []
    again = between(old, page("vllm:num_preemptions_total 3"))
    assert again.total("preemptions") == 3


@given(st.text(max_size=300))
def test_any_text_is_a_page_or_a_clear_error(text):
    looks_like_page(text)
    try:
        page_findings(parse_page(text, source="x"))
    except RecordError as error:
        assert "x" in str(error)


def test_a_cut_page_with_a_notice_in_it_is_read_as_far_as_it_goes():
    one = page("# HELP vllm:num_requests_waiting x", "vllm:num_requests_waiting 50",
               "<html>502 Bad Gateway</html>", "vllm:num_requests_runn")  # fmt: skip
    assert one.total("waiting") == 50
    assert [f.cause for f in page_findings(one)] == ["queue_pressure"]


def test_health_checks_do_not_dilute_the_error_rate():
    rows = ('http_requests_total{handler="/v1/completions",status="5xx"} 9',
            'http_requests_total{handler="/v1/completions",status="2xx"} 91',
            'http_requests_total{handler="/health",status="2xx"} 99999')  # fmt: skip
    assert causes(*rows) == {"error_rate"}


@pytest.mark.parametrize("rate", [0.0, 0.29, 0.31, 1.0])
def test_drafts_are_poor_below_three_in_ten(rate):
    found = causes("vllm:spec_decode_num_draft_tokens_total 1000",
                   f"vllm:spec_decode_num_accepted_tokens_total {1000 * rate}")  # fmt: skip
    assert ("draft_rarely_accepted" in found) == (rate < 0.3)


def test_samples_without_a_value_or_a_bound_are_left_out():
    found = page(
        "vllm:num_requests_running NaN", "vllm:num_requests_waiting NaN",
        "vllm:kv_cache_usage_perc +Inf", "vllm:e2e_request_latency_seconds_sum NaN",
        'vllm:time_to_first_token_seconds_bucket{le="abc"} 5',
        'vllm:time_to_first_token_seconds_bucket{le="NaN"} 5',
        'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 5', "vllm:num_preemptions_total 0",
    )  # fmt: skip
    assert page_findings(found) == [] and found.total("running") is None
    assert found.buckets("ttft") == [(float("inf"), 5.0)]


def test_nothing_answered_between_two_readings_is_no_error():
    one = page('http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 9.0')
    assert page_findings(between(one, one)) == []


@pytest.mark.parametrize("prefix", ["vllm:", "ray_vllm:", "ray_vllm_"])
def test_names_that_ray_gives_them_are_known(prefix):
    page = parse_page(
        f'{prefix}num_requests_running{{WorkerId="a"}} 3\n'
        f'{prefix}num_requests_running{{WorkerId="b"}} 4\n'
        f"{prefix}e2e_request_latency_seconds_sum 9\n{prefix}e2e_request_latency_seconds_count 3\n",
        source="m",
    )
    assert page.is_server
    assert page.total("running") == 7 and page.mean("e2e") == (3.0, 3.0)


def test_a_routers_own_page_is_no_servers():
    page = parse_page('vllm_router_processed_requests_total{worker="a"} 3\n', source="m")
    assert not page.is_server
