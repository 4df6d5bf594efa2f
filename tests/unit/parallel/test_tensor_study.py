"""The study's data are read as they are meant, with ranks, passes and sweeps made up here."""

from __future__ import annotations

from typing import Any

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.estimate.split_gain import exchange_s
from turbo_lab.models.catalog import load_model
from turbo_lab.parallel.tensor_study import Study, carried_bytes
from turbo_lab.parallel.tensor_traffic import greedy_exchanges

SPEC = load_model("smollm2-135m").spec()
POINT = (1, 64)
ALPHA_S, RATE = 2e-4, 1e9
SIZES = [1024 * 4**k for k in range(6)]


def call_s(size_bytes: float) -> float:
    return ALPHA_S + size_bytes / RATE


def sweep(kind: str, slower: float) -> list[dict[str, Any]]:
    sizes = SIZES if kind == "all_reduce" else [48, 768, 12288]
    return [
        {"size_bytes": n, "time_s": 9.0, "samples_s": [slower * call_s(n)] * 3, "wrong": 0}
        for n in sizes
    ]


def rank(number: int, *, slower: float = 1.0) -> dict[str, Any]:
    """Two passes; the second one was disturbed."""
    first = number == 0
    return {
        "check": {"logit_error": 1e-6},
        "whole": [[(0.30, 0.040)], [(0.36, 0.044)]] if first else [],
        "whole_wide": [[(0.16, 0.022)], [(0.2, 0.03)]] if first else [],
        "share": [[(0.11, 0.015)], [(0.12, 0.016)]] if number < 2 else [],
        "sharded": [[(0.30 * slower, 0.06 * slower)], [(0.40, 0.08)]],
        "inside": [[0.1], [0.1]],
        "sweeps": [{k: sweep(k, slower) for k in ("all_reduce", "all_gather")} for _ in range(2)],
    }


@pytest.fixture
def study() -> Study:
    rows = [rank(0), rank(1, slower=1.1), rank(2)]
    return Study.of({"ranks": 3, "points": [list(POINT)], "cores": 2, "rank": rows}, spec=SPEC)


def test_the_slowest_rank_and_the_least_pass_count(study: Study) -> None:
    assert study.passes("sharded", POINT, "decode") == pytest.approx([0.066, 0.08])
    assert study.seconds("sharded", POINT, "prefill") == pytest.approx(0.33)
    assert study.seconds("whole", POINT, "decode") == 0.040
    assert study.seconds("share", POINT, "decode") == 0.015
    assert study.noise() == pytest.approx((0.40 / 0.33 + 0.08 / 0.066) / 2 - 1)


def test_the_forecast_is_turns_of_shares_and_the_collectives_of_the_formula(study: Study) -> None:
    found = study.forecast(POINT, "prefill")
    listed = greedy_exchanges(SPEC, ranks=3, rows=1, tokens=64)
    wanted = exchange_s(listed, seconds=lambda _, size: 1.1 * call_s(size))
    assert found.exchange_s == pytest.approx(wanted, rel=0.02)
    assert found.seconds == pytest.approx(2 * 0.11 + found.exchange_s)
    assert found.least_s == pytest.approx(1.5 * 0.11 + found.exchange_s)
    assert study.held_out().median < 0.02
    alone = study.calls_s("all_reduce")
    assert list(alone) == SIZES
    assert alone[1024] == pytest.approx([1.1 * call_s(1024)] * 2)


def test_the_repeated_part_is_what_the_share_has_too_much(study: Study) -> None:
    part = study.repeated_share(POINT, "decode")
    assert part * 0.040 + (1 - part) * 0.040 / 3 == pytest.approx(0.015)


def test_nothing_measured_is_said(study: Study) -> None:
    for ask in (lambda one: one.ranks, lambda one: one.noise(), lambda one: one.check):
        with pytest.raises(UnmeasuredError, match="not run"):
            ask(Study.of(None, spec=SPEC))
    for one in study.raw["rank"]:
        one["share"] = []
    with pytest.raises(UnmeasuredError, match="no rank measured share"):
        study.forecast(POINT, "decode")


def test_interfaces_count_without_headers() -> None:
    found = [{"sent_bytes": 1000, "sent_packets": 10}, {"sent_bytes": 500, "sent_packets": 5}]
    assert carried_bytes(found) == 1500 - 15 * 66
    for nothing in (None, []):
        with pytest.raises(UnmeasuredError, match="no interface counted"):
            carried_bytes(nothing)
