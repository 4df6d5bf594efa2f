from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GiB
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.estimate.plan import format_gain, plan
from turbo_lab.models.catalog import load_model

LLAMA = load_model("llama-3.1-8b").spec()


def test_a_published_budget_gives_its_own_pool():
    """llm-d-planner@e50305a: 51.38 GiB on an H100 of 79.18 GiB at 0.9, 4.76 + 0.13 GiB of work."""
    found = plan(LLAMA, card_gib=79.18, context_tokens=16_000, utilization=0.9, work_gib=4.89)
    assert found.budget.kv_bytes[0] == found.budget.kv_bytes[1]
    assert found.budget.kv_bytes[0] / GiB == pytest.approx(51.38, abs=0.01)
    assert found.users == (26, 26)  # 51.38 GiB over 16,000 tokens of 128 KiB: 26.3
    assert found.cached_tokens[0] == pytest.approx(51.38 * GiB / 131_072, rel=1e-3)


def test_without_a_start_the_answer_is_a_band():
    found = plan(LLAMA, card_gib=80, context_tokens=8192)
    assert found.users[0] < found.users[1] and found.limit == "cache"
    assert found.conversation_bytes == GiB


def test_weights_that_do_not_fit_leave_nobody():
    found = plan(LLAMA, card_gib=12, context_tokens=512)
    assert found.users == (0, 0) and found.cached_tokens == (0, 0) and found.limit == "weights"


def test_ranks_share_the_weights_and_the_cache():
    alone = plan(LLAMA, card_gib=24, context_tokens=8192, work_gib=2)
    shared = plan(
        LLAMA,
        card_gib=24,
        context_tokens=8192,
        work_gib=2,
        deployment=Deployment(tensor_parallel=2),
    )
    assert shared.budget.weights_bytes < 0.51 * alone.budget.weights_bytes
    assert shared.conversation_bytes == alone.conversation_bytes // 2
    assert shared.users[0] > 4 * alone.users[0]


@given(st.integers(min_value=1, max_value=60_000), st.floats(min_value=20, max_value=200))
def test_users_are_whole_blocks_of_the_pool(tokens, card_gib):
    found = plan(LLAMA, card_gib=card_gib, context_tokens=tokens, work_gib=2)
    assert found.users[0] * found.conversation_bytes <= max(0, found.budget.kv_bytes[0])
    longer = plan(LLAMA, card_gib=card_gib, context_tokens=2 * tokens, work_gib=2)
    assert longer.users[0] <= found.users[0]


def test_eight_bits_double_only_where_nothing_else_counts():
    def gain(model, kind, tokens):
        spec = load_model(model).spec()
        return format_gain(spec, kv_dtype=kind, context_tokens=tokens, kv_cache_bytes=40 * GiB)

    assert gain("llama-3.1-8b", "fp8", 8192) == pytest.approx(2, rel=1e-3)
    assert gain("llama-3.1-8b", "fp8_per_token_head", 8192) == pytest.approx(256 / 132, rel=1e-2)
    assert gain("deepseek-v3", "fp8_ds_mla", 8192) == pytest.approx(1152 / 656, rel=1e-2)
    assert gain("qwen3.5-27b", "fp8", 512) == 1
    assert gain("qwen3.5-27b", "fp8", 512) < gain("qwen3.5-27b", "fp8", 131_072) < 2


def test_unknown_weights_and_an_empty_pool_are_refused():
    odd = dict(LLAMA.root_config, quantization_config={"quant_method": "bitsandbytes"})
    spec = dataclasses.replace(LLAMA, root_config=odd, quantization="bitsandbytes")
    with pytest.raises(UsageError, match="weight format 'bitsandbytes'"):
        plan(spec, card_gib=24, context_tokens=512)
    with pytest.raises(UsageError, match="not even one block"):
        format_gain(LLAMA, kv_dtype="fp8", context_tokens=512, kv_cache_bytes=1024)
