from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.cost import cost_per_million_tokens, energy_per_million_tokens
from turbo_lab.metrics.goodput import attainment
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import Timeline


def run(first_s: float, gap_s: float, count: int, *, tokens: int | None = 1, **more) -> Timeline:
    chunks = [(first_s + i * gap_s, tokens, "content") for i in range(count)]
    facts = {
        "scheduled_s": 0.0,
        "sent_s": 0.0,
        "status_code": 200,
        "chunks": chunks,
        "finish_reason": "stop",
        "saw_done": True,
        "closed_s": 1.0,
    }
    return Timeline(**{**facts, **more})


def test_a_limit_is_met_when_equal():
    got = attainment([run(0.25, 0.05, 3)], slo={"ttft": 0.25})
    assert got.share == 1.0


def test_one_chunk_replies_are_not_applicable_and_shown():
    got = attainment([run(0.1, 0.0, 1)], slo={"tpot": 0.05})
    assert got.share == 1.0 and got.not_applicable == {"tpot": 1}
    assert "tpot not applicable to 1 requests" in str(got)


@pytest.mark.parametrize("name", ["turbo", "vllm-0.32", "aiperf"])
def test_unknown_token_counts_give_no_verdict(name):
    got = attainment([run(0.1, 0.01, 4, tokens=None)], slo={"tpot": 0.05}, convention=name)
    assert (got.share, got.goodput_req_s, got.unknown) == (None, None, 1)
    assert "cannot tell for 1" in str(got)


def test_a_miss_elsewhere_decides_even_if_a_number_is_unknown():
    got = attainment([run(0.9, 0.01, 4, tokens=None)], slo={"tpot": 0.05, "ttft": 0.1})
    assert (got.share, got.unknown) == (0.0, 0)


def test_an_empty_reply_misses():
    got = attainment([run(0.1, 0, 0, chunks=[(0.1, 0, "empty")])], slo={"ttft": 1.0})
    assert (got.attained, got.counted) == (0, 1)


def test_from_the_schedule():
    late = run(5.1, 0.01, 3, sent_s=5.0, closed_s=6.0)
    assert attainment([late], slo={"ttft": 0.2}).share == 1.0
    assert attainment([late], slo={"ttft_scheduled": 0.2}).share == 0.0


def test_all_failed_is_zero_attained_of_what_was_attempted():
    got = attainment([Timeline(sent_s=0.0, closed_s=2.0, error="x")] * 4, slo={"ttft": 1})
    assert (got.share, got.goodput_req_s, got.attempted) == (0.0, 0.0, 4)


def test_no_requests_no_numbers():
    got = attainment([], slo={"ttft": 1})
    assert (got.share, got.goodput_req_s) == (None, None)


@pytest.mark.parametrize(
    ("slo", "convention", "word"),
    [
        ({"tftt": 1}, "turbo", "ttft"),
        ({"ttft": 0}, "turbo", "above 0"),
        ({}, "turbo", "no objective"),
        ({"ttft": 1}, "sglang", "no goodput"),
    ],
)
def test_wrong_use(slo, convention, word):
    with pytest.raises(UsageError, match=word):
        attainment([], slo=slo, convention=convention)


def test_cost_and_energy_name_their_denominators():
    s = summarize([run(0.1, 0.1, 5, closed_s=3.6)] * 2)
    cost = cost_per_million_tokens(s, price_per_hour=2.0, devices=2)
    assert cost.value == pytest.approx(4.0 / 3600 * 3.6 / 10 * 1e6)
    assert "2 devices" in str(cost) and "delivered output tokens" in str(cost)
    energy = energy_per_million_tokens(s, energy_j=3.6e6)
    assert energy.value == pytest.approx(1e5)


def test_cost_is_undefined_without_tokens():
    for runs in ([], [run(0.1, 0.1, 3, tokens=None)]):
        cost = cost_per_million_tokens(summarize(runs), price_per_hour=1.0)
        assert cost.value is None and "undefined" in str(cost)
    with pytest.raises(UsageError):
        cost_per_million_tokens(summarize([]), price_per_hour=0)
