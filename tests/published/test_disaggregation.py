"""Published figures of separated serving: those that can be recomputed are, the rest keep faith."""

from __future__ import annotations

import json
import re

import pytest

from turbo_lab.core.host import repository_root
from turbo_lab.course.claims import claim
from turbo_lab.estimate.transfer import min_reuse_bandwidth_bytes_s

ROOT = repository_root()
ROWS = {
    row["id"]: row
    for row in json.loads((ROOT / "data" / "reference" / "disaggregation.json").read_text())["rows"]
}
ROOFS = json.loads((ROOT / "data" / "reference" / "roofline.json").read_text())
SHARED = ROOT.parent / "shared" / "reference" / "disaggregation.json"


def test_the_bill_of_a_day() -> None:
    f = ROWS["deepseek"]["figures"]
    usd = f["nodes"] * f["gpus_per_node"] * 24 * f["usd_per_gpu_hour"]
    assert usd == f["usd_per_day"]


def test_the_ratio_of_two_rates() -> None:
    f = ROWS["aiconfigurator"]["figures"]
    assert round(f["separate_tok_s_gpu"] / f["together_tok_s_gpu"], 2) == f["ratio"]


@pytest.mark.parametrize("trace", ["conversation", "tool_and_agent", "synthetic"])
def test_a_looser_limit_leaves_less_to_gain(trace: str) -> None:
    gains = ROWS["mooncake"]["figures"]["capacity_gain_percent_by_tbt_ms"][trace]
    by_limit = [gains[limit] for limit in sorted(gains, key=int)]
    assert by_limit == sorted(by_limit, reverse=True)


def test_faster_chips_need_faster_links() -> None:
    """Mooncake's formula on its own rows: the bandwidth grows with the rate, and with nothing else.

    Also the cards of its test bed (four of 200 Gbit/s) carry both rows with room to spare.
    """
    inputs, rows = ROOFS["reuse_bandwidth"]["inputs"], ROOFS["reuse_bandwidth"]["rows"]
    a800, h800 = (
        min_reuse_bandwidth_bytes_s(peak_flops=row["peak_flops"], **inputs) for row in rows
    )
    assert h800 / a800 == pytest.approx(rows[1]["peak_flops"] / rows[0]["peak_flops"])
    assert h800 < ROWS["mooncake"]["link_gbit_s"] / 8 * 1e9
    assert ROWS["distserve"]["link_gbit_s"] / 8 * 1e9 < a800
    assert claim("mooncake-reuse-bandwidth").number == rows[0]["published_gb_s"]


def test_claims_have_the_figures_of_the_rows() -> None:
    figures = {
        "distserve-goodput": ROWS["distserve"]["figures"]["requests_ratio"],
        "mooncake-strict-limit": 498,
        "splitwise-cost": ROWS["splitwise"]["figures"]["throughput_ratio_same_cost_and_power"],
        "sarathi-chunks": ROWS["sarathi"]["figures"]["capacity_ratio_mistral_7b"],
        "cachegen-size": ROWS["cachegen"]["figures"]["size_ratio"][1],
    }
    for name, number in figures.items():
        assert claim(name).number == number


def test_every_number_is_in_the_reference() -> None:
    if not SHARED.exists():
        pytest.skip("the reference folder is not beside this checkout")
    text = re.sub(r"(\d),(\d{3})", r"\1\2", SHARED.read_text())
    known = {float(n) for n in re.findall(r"\d+(?:\.\d+)?|\.\d+", text)}
    known |= {1000 * n for n in known} | {n / 100 for n in known}
    for row in ROWS.values():
        for number in numbers(row["figures"]):
            assert number in known or number in (0.8, 8), (row["id"], number)


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [n for part in value.values() for n in numbers(part)]
    if isinstance(value, list):
        return [n for part in value for n in numbers(part)]
    return [float(value)]  # type: ignore[arg-type]
