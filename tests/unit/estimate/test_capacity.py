"""The capacity law: hand-computed pools, properties, versions and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GiB
from turbo_lab.estimate.capacity import capacity, pool_layout
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.estimate.groups import group_layers
from turbo_lab.estimate.law import LAWS, law_for
from turbo_lab.estimate.pages import CacheLayer
from turbo_lab.models.catalog import find_model
from turbo_lab.models.memory import kv_bytes_per_token
from turbo_lab.models.stages import pipeline_stages

MODELS = ("llama-3.1-8b", "gpt-oss-20b", "deepseek-v3.2", "llama-4-scout", "gemma-4-26b-a4b",
          "qwen3.5-27b", "kimi-linear-48b-a3b", "falcon-h1-0.5b", "mimo-v2-flash")  # fmt: skip


def test_the_documented_cpu_boot() -> None:
    cpu = Deployment(platform="cpu")
    found = capacity(find_model("smollm2-135m"), kv_cache_bytes=GiB, max_len=2048, deployment=cpu)
    assert (found.blocks, found.tokens) == (364, 46_592)
    assert found.max_concurrency == 22.75
    fp32 = Deployment(platform="cpu", dtype="fp32")
    half = capacity(find_model("smollm2-135m"), kv_cache_bytes=GiB, max_len=2048, deployment=fp32)
    assert half.tokens == 23_296


def test_a_full_attention_pool_is_bytes_over_bytes_per_block() -> None:
    spec = find_model("qwen3-8b")
    found = capacity(spec, kv_cache_bytes=20 * GiB, max_len=8192)
    block = 16 * kv_bytes_per_token(spec)
    assert found.blocks == 20 * GiB // block
    assert found.max_concurrency == found.blocks / 512
    assert found.required_gib == 512 * block / GiB


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    gib=st.integers(1, 60),
    length=st.integers(1, 100_000),
    batched=st.sampled_from([64, 2048, 16_384]),
    spec_tokens=st.integers(0, 4),
)
def test_properties_of_every_pool(
    model: str, gib: int, length: int, batched: int, spec_tokens: int
) -> None:
    spec = find_model(model)
    setup = Deployment(max_batched_tokens=batched, speculative_tokens=spec_tokens)
    found = capacity(spec, kv_cache_bytes=gib * GiB, max_len=length, deployment=setup)
    bigger = capacity(spec, kv_cache_bytes=(gib + 1) * GiB, max_len=length, deployment=setup)
    block = max(found.pool.bytes_per_block)
    assert found.blocks * block <= gib * GiB < (found.blocks + 1) * block
    assert found.tokens <= bigger.tokens
    assert 0 <= found.longest_len <= length
    assert found.fits == (found.pool.required_bytes <= (found.blocks - 1) * block)
    if 0 < found.longest_len < length:
        fitting, beyond = (
            pool_layout(spec, max_len=n, deployment=setup).required_bytes
            for n in (found.longest_len, found.longest_len + 1)
        )
        assert fitting <= (found.blocks - 1) * block < beyond


def test_windows_hold_the_window_and_the_tokens_in_flight() -> None:
    spec = find_model("gpt-oss-20b")
    for law, async_on, flight in (
        ("0.21", True, 2048),
        ("0.32", False, 2048),
        ("0.32", True, 4096),
    ):
        setup = Deployment(async_scheduling=async_on, max_batched_tokens=2048)
        pool = pool_layout(spec, max_len=131_072, deployment=setup, law=law)
        window = -(-(127 + flight) // 16) + 1
        assert sorted(pool.blocks_per_request) == [window, 131_072 // 16]


def test_without_the_hybrid_manager_and_under_old_laws_windows_save_nothing() -> None:
    spec = find_model("gpt-oss-20b")
    off = pool_layout(spec, max_len=131_072, deployment=Deployment(hybrid_manager=False))
    old = pool_layout(spec, max_len=131_072, law="0.8")
    assert off.required_bytes == old.required_bytes == 131_072 * kv_bytes_per_token(spec)
    assert pool_layout(spec, max_len=131_072).required_bytes < off.required_bytes


def test_fp8_does_not_simply_double_a_pool_with_states() -> None:
    spec = find_model("qwen3.5-27b")
    plain, small = (
        capacity(spec, kv_cache_bytes=20 * GiB, max_len=8192, deployment=Deployment(kv_dtype=name))
        for name in ("bf16", "fp8")
    )
    assert small.tokens < 1.9 * plain.tokens
    assert small.pool.groups[0].block_tokens > 1.5 * plain.pool.groups[0].block_tokens


def test_kv_heads_fewer_than_ranks_stop_dividing() -> None:
    spec = find_model("qwen3-30b-a3b")
    sizes = [
        pool_layout(spec, max_len=4096, deployment=Deployment(tensor_parallel=tp)).required_bytes
        for tp in (1, 2, 4, 8)
    ]
    assert sizes == [sizes[0], sizes[0] // 2, sizes[0] // 4, sizes[0] // 4]


def test_speculation_adds_state_blocks_and_the_layers_of_mtp() -> None:
    spec = find_model("qwen3.5-27b")
    plain = pool_layout(spec, max_len=4096)
    drafted = pool_layout(spec, max_len=4096, deployment=Deployment(speculative_tokens=3))
    bare = Deployment(speculative_tokens=3, prediction_layers=0)
    assert max(len(g.layers) for g in plain.groups) == 16
    assert max(len(g.layers) for g in drafted.groups) == 17
    assert max(len(g.layers) for g in pool_layout(spec, max_len=9, deployment=bare).groups) == 16
    assert min(plain.blocks_per_request) == 2
    assert sorted(drafted.blocks_per_request)[1] == 2 + 3


def test_pipeline_stages_split_like_the_engine() -> None:
    assert pipeline_stages(30, stages=4).count(0) == 7
    assert [pipeline_stages(61, stages=4).count(s) for s in range(4)] == [15, 15, 16, 15]
    assert [pipeline_stages(10, stages=4).count(s) for s in range(4)] == [2, 3, 3, 2]
    spec = find_model("llama-3.1-8b")
    uneven = Deployment(pipeline_parallel=3)
    found = capacity(spec, kv_cache_bytes=(8 * GiB, GiB, 8 * GiB), max_len=4096, deployment=uneven)
    assert found.blocks == GiB // (11 * 16 * 4096)


def layer(kind: str, **changes) -> CacheLayer:
    return CacheLayer(**{"kind": kind, "block_tokens": 16, "token_bytes": 1024, **changes})


@pytest.mark.parametrize(
    ("full", "windowed", "sizes"),
    [(10, 20, [10, 10, 10]), (12, 13, [12, 13]), (13, 12, [13, 12]), (4, 9, [4, 3, 3, 3])],
)
def test_groups_take_the_smaller_kind_or_pad_when_nearly_equal(
    full: int, windowed: int, sizes: list[int]
) -> None:
    layers = [(0, layer("full"))] * full
    layers += [(0, layer("sliding", window_tokens=128))] * windowed
    assert [len(g.layers) for g in group_layers(layers)] == sizes


def test_pages_are_made_equal_by_longer_blocks_or_padding() -> None:
    double = group_layers([(0, layer("full", token_bytes=2048)), (0, layer("sliding"))])
    assert sorted(g.block_tokens for g in double) == [16, 32]
    odd = group_layers([(0, layer("full", token_bytes=1536)), (0, layer("sliding"))])
    assert {g.layers[0][1].page_bytes for g in odd} == {16 * 1536}
    with pytest.raises(UsageError, match="refuses"):
        group_layers([(0, layer("mla")), (0, layer("chunked", token_bytes=1536))])


@pytest.mark.parametrize(
    ("version", "line"),
    [("0.6.3", "blocks"), ("0.9", "blocks"), ("0.10", "per_group"), ("0.20.2", "per_group"),
     ("0.21", "requests"), ("v0.32.0+cpu", "requests"), ("1.0", "requests"),
     ("latest", "requests")],
)  # fmt: skip
def test_versions_map_to_laws(version: str, line: str) -> None:
    assert law_for(version).token_line == line


def test_laws_are_in_order_and_the_token_line_differs_for_two_groups() -> None:
    assert law_for() is LAWS[-1]
    spec = find_model("gpt-oss-20b")
    lines = {
        law: capacity(spec, kv_cache_bytes=8 * GiB, max_len=131_072, law=law).tokens
        for law in ("0.8", "0.19", "0.32")
    }
    assert lines["0.8"] == 8 * GiB // (16 * 49_152) * 16
    assert lines["0.19"] == 8 * GiB // (16 * 24_576) // 2 * 16
    assert lines["0.32"] > lines["0.19"]


@pytest.mark.parametrize(
    ("settings_", "named"),
    [({"tensor_parallel": 0}, "tensor_parallel"), ({"tensor_parallel": 3}, "tensor_parallel"),
     ({"pipeline_parallel": 33}, "pipeline_parallel"), ({"kv_dtype": "fp6"}, "fp6"),
     ({"speculative_tokens": -1}, "speculative_tokens"), ({"block_tokens": 0}, "block_tokens"),
     ({"platform": "tpu"}, "platform")],
)  # fmt: skip
def test_impossible_deployments_are_named(settings_: dict, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        capacity(
            find_model("llama-3.1-8b"), kv_cache_bytes=GiB, max_len=64,
            deployment=Deployment(**settings_),
        )  # fmt: skip


def test_bad_sizes_lengths_and_laws_are_named() -> None:
    spec = find_model("llama-3.1-8b")
    with pytest.raises(UsageError, match="max_len is 0"):
        capacity(spec, kv_cache_bytes=GiB, max_len=0)
    with pytest.raises(UsageError, match="kv_cache_bytes is -1"):
        capacity(spec, kv_cache_bytes=-1, max_len=1)
    with pytest.raises(UsageError, match="law is 'newest'"):
        law_for("newest")
    nothing = capacity(spec, kv_cache_bytes=0, max_len=16)
    assert (nothing.blocks, nothing.longest_len, nothing.fits) == (0, 0, False)
