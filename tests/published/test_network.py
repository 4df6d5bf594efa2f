"""Published figures of collectives: bus bandwidth as nccl-tests has it, and the cost model."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.core.units import GiB
from turbo_lab.network.cost import (
    KINDS,
    Network,
    algbw,
    busbw,
    busbw_factor,
    collective_s,
    fit_message_cost,
    latency_bandwidth,
    message_point,
    seconds_at,
    through_ends,
)

FACTS = json.loads((repository_root() / "data" / "reference" / "collectives.json").read_text())
SHARED = repository_root().parent / "shared" / "reference" / "collectives.json"
A100 = FACTS["a100x8_all_reduce"]["rows"]
POINTS = [(row["bytes"], row["us"] * 1e-6) for row in A100]


@pytest.mark.parametrize("kind", FACTS["busbw_factor"]["kinds"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_factor_of_every_kind(kind: str, ranks: int) -> None:
    formula = FACTS["busbw_factor"]["kinds"][kind]
    expected = {"2(n-1)/n": 2 * (ranks - 1) / ranks, "(n-1)/n": (ranks - 1) / ranks, "1": 1.0}
    assert busbw_factor(kind, ranks) == pytest.approx(expected[formula])


def test_every_kind_of_the_table_and_no_other() -> None:
    table = {name.replace("alltoall", "all_to_all") for name in FACTS["busbw_factor"]["kinds"]}
    assert table == set(KINDS)
    with pytest.raises(UsageError, match=r"no collective 'all_reduc'.*Did you mean 'all_reduce'"):
        busbw("all_reduc", 1, 1, 2)
    assert busbw("allreduce", 1, 1, 2) == busbw("all_reduce", 1, 1, 2), "nccl-tests' name"


@pytest.mark.parametrize("row", A100, ids=lambda r: r["name"])
def test_measured_rows(row: dict) -> None:
    found = busbw("all_reduce", row["bytes"], row["us"] * 1e-6, row["ranks"]) / 1e9
    assert found == pytest.approx(row["published_busbw_gb_s"], abs=0.04)
    if row["published_algbw_gb_s"]:
        size_rate = algbw(row["bytes"], row["us"] * 1e-6) / 1e9
        assert round(size_rate, 2) == row["published_algbw_gb_s"]


@pytest.mark.parametrize("row", FACTS["b200_4gib_ms"]["rows"], ids=lambda r: f"n{r['ranks']}")
def test_time_from_bus_bandwidth(row: dict) -> None:
    seconds = seconds_at("all_reduce", 4 * GiB, row["busbw_gb_s"] * 1e9, row["ranks"])
    assert round(seconds * 1e3, 2) == row["ms"]
    assert busbw("all_reduce", 4 * GiB, seconds, row["ranks"]) / 1e9 == pytest.approx(
        row["busbw_gb_s"]
    )


def test_one_piece_through_the_ends_is_off_by_half_and_pieces_are_not() -> None:
    one, fitted = through_ends(POINTS), fit_message_cost(POINTS)
    for row, (size, seconds) in zip(FACTS["single_fit_from_ends"]["rows"], POINTS, strict=True):
        assert one.seconds(size) * 1e6 == pytest.approx(row["us"], rel=1e-3)
        error = 100 * (one.seconds(size) / seconds - 1)
        assert error == pytest.approx(row["error_percent"], abs=0.06)
        assert fitted.seconds(size) == pytest.approx(seconds, rel=0.02)


def test_ring_times_are_those_of_the_reference() -> None:
    alpha, rate, size = 5e-6, 2e9, 8 * 1_000_000
    for n in (2, 4, 8):
        flat = Network.flat(n, latency_bandwidth(alpha, rate))
        share = (n - 1) * alpha + (n - 1) / n * size / rate
        assert collective_s("all_reduce", size, network=flat) == pytest.approx(2 * share)
        for kind in ("all_gather", "reduce_scatter", "all_to_all"):
            assert collective_s(kind, size, network=flat) == pytest.approx(share)


def test_measured_rows_become_points_of_one_message() -> None:
    size, seconds = POINTS[-1]
    found = message_point("all_reduce", size, seconds, ranks=8)
    assert found == (size / 8, pytest.approx(seconds / 14))


def test_moving_a_cache() -> None:
    facts = FACTS["kv_transfer"]
    for row in facts["rows"]:
        cost = latency_bandwidth(0.0, row["gb_s"] * 1e9)
        assert round(cost.seconds(facts["bytes"]), 2) == row["seconds"]


def test_the_facts_are_those_of_the_reference() -> None:
    if not SHARED.exists():
        pytest.skip("the reference folder is not beside this checkout")
    given = json.loads(SHARED.read_text())
    assert given["busbw_factor"] == FACTS["busbw_factor"]["kinds"]
    ours = [(r["bytes"], r["us"], r["ranks"], r["published_busbw_gb_s"]) for r in A100]
    assert ours == [(r["bytes"], r["us"], r["n"], r["published_busbw"]) for r in given["rows"]]
    assert given["check_B200_4GiB_ms"]["published"] == [
        row["ms"] for row in FACTS["b200_4gib_ms"]["rows"]
    ]
    for name, theirs in (("h200x8_busbw_gb_s", "busbw_H200x8"),
                         ("h200_busbw_gb_s_by_gpus", "busbw_H200_by_gpus_NVLS"),
                         ("b200_busbw_gb_s", "busbw_B200")):  # fmt: skip
        assert {k: v for k, v in FACTS[name].items() if k != "source"} == given[theirs]
