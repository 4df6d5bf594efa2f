"""Published sizes of KV caches, weights and budgets, to the last printed digit."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core import host
from turbo_lab.core.units import GB, KB, GiB, KiB, MiB
from turbo_lab.estimate.budget import ACTIVATION_GIB, GRAPHS_GIB, NON_TORCH_GIB, memory_budget
from turbo_lab.models.catalog import all_models, load_model
from turbo_lab.models.memory import (
    indexer_bytes_per_token,
    kv_bytes_per_token,
    kv_bytes_per_token_growing,
    kv_cache_bytes,
    state_bytes_per_request,
)
from turbo_lab.models.parameters import count_parameters
from turbo_lab.models.spec import from_hf_config
from turbo_lab.models.weights import weight_bytes

DATA = json.loads((host.repository_root() / "data/reference/memory_published.json").read_text())
UNITS = {"B": 1, "kB": KB, "KiB": KiB, "MiB": MiB, "GiB": GiB, "GB": GB}


def spec_of(row: dict):
    config = {**load_model(row["model"]).config, **row.get("override", {})}
    if "quantization_config" in row:
        config["quantization_config"] = row["quantization_config"]
    return from_hf_config(config)


@pytest.mark.parametrize("row", DATA["kv"], ids=lambda row: row["id"])
def test_published_kv_sizes(row: dict) -> None:
    size = kv_cache_bytes(
        spec_of(row), batch=1, context_tokens=row.get("tokens", 1), dtype=row.get("dtype", "bf16")
    )
    ours = size / UNITS[row["unit"]]
    # Some sources cut the last digit off instead of rounding it.
    step = 10.0 ** -row["decimals"]
    assert row["published"] - step / 2 - 1e-9 <= ours < row["published"] + step


def test_the_first_405b_layout_needs_twice_the_present_one() -> None:
    row = next(r for r in DATA["kv"] if r["id"] == "llama-405b-1024")
    now = kv_bytes_per_token(load_model(row["model"]).spec())
    assert kv_bytes_per_token(spec_of(row)) == 2 * now


@pytest.mark.parametrize("row", [r for r in DATA["weights"] if "open" not in r],
                         ids=lambda row: row["id"])  # fmt: skip
def test_weights_agree_with_the_log_within_a_hundredth_gib(row: dict) -> None:
    found = weight_bytes(spec_of(row))
    assert found is not None
    assert abs(found.total / GiB - row["logged_gib"]) <= 0.01


def test_without_the_rotary_table_two_of_the_weights_would_be_off() -> None:
    row = next(r for r in DATA["weights"] if r["id"] == "llama-3.1-8b-fine")
    found = weight_bytes(spec_of(row))
    assert found is not None
    assert abs((found.total - found.rotary) / GiB - row["logged_gib"]) > 0.03
    assert abs(found.total / GiB - row["logged_gib"]) < 0.0001


@pytest.mark.parametrize("row", DATA["budgets"]["rows"], ids=lambda r: f"{r['model']}-tp{r['tp']}")
def test_published_budgets_close(row: dict) -> None:
    budget = memory_budget(
        total_bytes=int(DATA["budgets"]["device_gib"] * GiB),
        weights_bytes=int(row["weights_gib"] * GiB),
        utilization=row["utilization"],
        activation_bytes=int(row["activation_gib"] * GiB),
        non_torch_bytes=int(row["non_torch_gib"] * GiB),
        graphs_bytes=int(row["graphs_gib"] * GiB),
        law_version="0.11",
    )
    low, high = budget.kv_bytes
    assert budget.measured
    assert low == high
    # Five printed terms, each rounded to 0.01: their errors add up to 0.01 to 0.02.
    assert abs(low / GiB - row["kv_gib"]) <= 0.015
    band = memory_budget(
        total_bytes=int(DATA["budgets"]["device_gib"] * GiB),
        weights_bytes=int(row["weights_gib"] * GiB),
        utilization=row["utilization"],
        law_version="0.11",
    ).kv_bytes
    assert band[0] <= low + 0.01 * GiB
    assert low - 0.01 * GiB <= band[1]


def test_the_budget_band_is_the_range_of_the_published_rows() -> None:
    rows = DATA["budgets"]["rows"]
    for name, band in (("activation_gib", ACTIVATION_GIB), ("non_torch_gib", NON_TORCH_GIB)):
        assert (min(r[name] for r in rows), max(r[name] for r in rows)) == band
    assert max(r["graphs_gib"] for r in rows) == GRAPHS_GIB[1]


@pytest.mark.parametrize("entry", all_models(), ids=lambda entry: entry.id)
def test_catalogue_facts(entry) -> None:
    spec, ours = entry.spec(), {}
    ours["kv_bytes_per_token"] = kv_bytes_per_token(spec)
    ours["kv_bytes_per_token_growing"] = kv_bytes_per_token_growing(spec)
    ours["state_bytes_per_request"] = state_bytes_per_request(spec)
    ours["indexer_bytes_per_token"] = indexer_bytes_per_token(spec)
    ours["parameters"] = count_parameters(spec).total
    assert {name: ours[name] for name in entry.published} == dict(entry.published)
    assert entry.source
