"""vLLM's start-up lines as others logged them, against the capacity law of their version."""

from __future__ import annotations

import functools
import json

import pytest

from turbo_lab.core import host
from turbo_lab.core.units import GiB
from turbo_lab.estimate.capacity import capacity, pool_layout
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.estimate.law import law_for
from turbo_lab.models.catalog import load_model

DATA = json.loads((host.repository_root() / "data/reference/memory_logs.json").read_text())
CLOSED = [row for row in DATA["rows"] if "open" not in row and "open_budget" not in row]
HALF_DIGIT_GIB = 0.005


def deployment(row: dict) -> Deployment:
    return Deployment(
        tensor_parallel=row.get("tp", 1),
        kv_dtype=row.get("kv_dtype", "auto"),
        speculative_tokens=row.get("speculative_tokens", 0),
        hybrid_manager=row.get("hybrid_manager", True),
        platform=row.get("platform", "gpu"),
    )


@functools.cache
def spec_of(model: str):
    return load_model(model).spec()


def at(row: dict, gib: float):
    return capacity(
        spec_of(row["model"]),
        kv_cache_bytes=round(gib * GiB),
        max_len=row["max_len"],
        deployment=deployment(row),
        law=row["law"],
    )


def ids(rows: list[dict]) -> list[str]:
    return [row["id"] for row in rows]


WITH_POOL = [row for row in CLOSED if "kv_gib" in row and row["model"]]


@pytest.mark.parametrize("row", WITH_POOL, ids=ids(WITH_POOL))
def test_the_logged_tokens_lie_within_the_rounding_of_the_logged_gib(row: dict) -> None:
    slack = 0.0 if row.get("exact_gib") else HALF_DIGIT_GIB
    low, high = at(row, row["kv_gib"] - slack), at(row, row["kv_gib"] + slack)
    expect = row["expect"]
    if "tokens" in expect:
        assert low.tokens <= expect["tokens"] <= high.tokens
        # Some whole number of blocks inside the rounding gives exactly the printed number.
        block = low.pool.bytes_per_block[0]
        sizes = range(low.blocks, high.blocks + 1)
        assert expect["tokens"] in {at(row, n * block / GiB).tokens for n in sizes}
    if "longest_len" in expect:
        assert low.longest_len <= expect["longest_len"] <= high.longest_len
    if "concurrency" in expect:
        lowest, highest = round(low.max_concurrency, 2), round(high.max_concurrency, 2)
        assert lowest <= expect["concurrency"] <= highest
    if "block_tokens" in expect:
        assert low.pool.groups[0].block_tokens == expect["block_tokens"]
    if "blocks_per_request" in expect:
        assert sum(low.pool.blocks_per_request) == expect["blocks_per_request"]


WITH_BLOCKS = [row for row in DATA["rows"] if "kv_blocks" in row]


@pytest.mark.parametrize("row", WITH_BLOCKS, ids=ids(WITH_BLOCKS))
def test_logged_blocks_give_the_logged_tokens_and_concurrency(row: dict) -> None:
    spec = load_model(row["model"] or "llama-3.1-8b").spec()
    pool = pool_layout(spec, max_len=row["max_len"], law=row["law"])
    found = capacity(
        spec,
        kv_cache_bytes=row["kv_blocks"] * pool.bytes_per_block[0],
        max_len=row["max_len"],
        law=row["law"],
    )
    assert found.blocks == row["kv_blocks"]
    assert found.tokens == row["expect"]["tokens"]
    if "concurrency" in row["expect"]:
        assert f"{found.max_concurrency:.2f}" == f"{row['expect']['concurrency']:.2f}"


WITH_NEED = [row for row in CLOSED if "required_gib" in row["expect"]]


@pytest.mark.parametrize("row", WITH_NEED, ids=ids(WITH_NEED))
def test_the_error_text_names_the_gib_that_the_law_requires(row: dict) -> None:
    spec = load_model(row["model"]).spec()
    pool = pool_layout(spec, max_len=row["max_len"], deployment=deployment(row), law=row["law"])
    assert f"{pool.required_bytes / GiB:.2f}" == f"{row['expect']['required_gib']:.2f}"


@pytest.mark.parametrize("row", [r for r in DATA["rows"] if "open" in r and "kv_gib" in r],
                         ids=lambda row: row["id"])  # fmt: skip
def test_open_rows_are_really_not_reproduced(row: dict) -> None:
    low, high = at(row, row["kv_gib"] - HALF_DIGIT_GIB), at(row, row["kv_gib"] + HALF_DIGIT_GIB)
    assert not low.tokens <= row["expect"]["tokens"] <= high.tokens


def test_weights_alone_overstate_what_fits() -> None:
    row = next(r for r in DATA["rows"] if "open_budget" in r)
    naive = row["open_budget"]["naive_tokens"]
    assert naive > 1.3 * row["expect"]["tokens"]


def test_a_block_grows_in_kernel_steps_until_a_state_fits_its_page() -> None:
    for row in DATA["alignment"]:
        step = row["kernel_tokens"]
        per_step = step * row["attention_bytes_per_token"]
        assert step * -(-row["state_bytes"] // per_step) == row["block_tokens"]


def test_another_engine_stores_the_same_bytes() -> None:
    for row in DATA["other_engines"]:
        layer = load_model(row["model"]).spec().attention_layers[0]
        layers = len(load_model(row["model"]).spec().attention_layers)
        keys = row["tokens"] * layers * (layer.kv_heads // row["tp"]) * layer.head_dim_k * 2
        assert f"{keys / GiB:.2f}" == f"{row['gib_each_of_k_and_v']:.2f}"


def test_every_law_names_a_source_and_the_rows_use_several() -> None:
    assert all(law_for(row["law"]).source for row in CLOSED)
    assert len({law_for(row["law"]).name for row in CLOSED}) >= 4
