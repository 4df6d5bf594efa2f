"""Counted work of a step: equal to counts by hand, and to the parameters of the model."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.estimate.work import (
    attention_flops,
    decode_work,
    expected_experts,
    indexer_flops,
    old_tokens_read,
    prefill_work,
    step_work,
)
from turbo_lab.hardware.roofline import Roof
from turbo_lab.models.catalog import load_model
from turbo_lab.models.layers import Attention, FeedForward, Indexer, Latent
from turbo_lab.models.memory import kv_bytes_per_token, state_bytes_per_request
from turbo_lab.models.parameters import count_parameters
from turbo_lab.models.spec import from_hf_config

ROOF = Roof(312e12, 1555e9, "A100")
HF_CONFIGS = repository_root().parent / "shared" / "reference" / "hf_configs"


def llama(**changes):
    return from_hf_config(
        {
            "model_type": "llama",
            "num_hidden_layers": 4,
            "hidden_size": 64,
            "intermediate_size": 160,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "vocab_size": 500,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            **changes,
        }
    )


def test_decode_by_hand() -> None:
    spec, batch, context = llama(), 3, 100
    layer = 64 * 64 + 2 * 64 * 16 + 64 * 64 + 3 * 64 * 160
    norms = 9 * 64
    weights = 4 * layer + 500 * 64 + norms
    work = decode_work(spec, batch=batch, context_tokens=context)
    attention = 4 * batch * 2 * 8 * (8 + 8) * context
    assert work.flops == 2 * batch * weights + attention
    assert work.weight_bytes == 2 * weights
    assert work.cache_bytes == batch * context * 4 * 2 * 2 * 8 * 2
    assert (work.tokens, work.sequences) == (batch, batch)


def test_prefill_by_hand() -> None:
    work = prefill_work(llama(), tokens=50)
    pairs = 50 * 51 / 2
    assert work.part("attention").flops == 4 * 2 * 8 * 16 * pairs
    assert work.part("head").flops == 2 * 500 * 64  # one position is sampled
    assert work.part("attention").cache_bytes == 50 * kv_bytes_per_token(llama())


def test_weights_read_are_the_parameters_without_the_looked_up_embedding() -> None:
    for tied in (True, False):
        spec = llama(tie_word_embeddings=tied)
        count = count_parameters(spec)
        expected = count.text - (0 if tied else count.embedding)
        assert decode_work(spec, batch=1, context_tokens=1).weight_bytes == 2 * expected


@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 300))
def test_a_prompt_in_chunks_is_the_same_attention(first: int, second: int, past: int) -> None:
    layer = Attention("full", 8, 2, 16, 16)
    whole = attention_flops(layer, new=first + second, past=past)
    parts = attention_flops(layer, new=first, past=past)
    if second:
        parts += attention_flops(layer, new=second, past=past + first)
    assert parts == pytest.approx(whole)


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 40))
def test_windows_count_pair_by_pair(new: int, past: int, window: int) -> None:
    layer = Attention("sliding", 1, 1, 1, 0, window_tokens=window)
    pairs = sum(min(past + i, window) for i in range(1, new + 1))
    assert attention_flops(layer, new=new, past=past) == 2 * pairs


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 40))
def test_chunks_count_pair_by_pair(new: int, past: int, chunk: int) -> None:
    layer = Attention("chunked", 1, 1, 1, 0, window_tokens=chunk)
    positions = range(past, past + new)
    assert attention_flops(layer, new=new, past=past) == 2 * sum(p % chunk + 1 for p in positions)
    assert old_tokens_read(layer, past=past) == past % chunk


@given(st.integers(0, 100), st.integers(1, 40))
def test_a_new_token_has_its_own_place_in_the_window(past: int, window: int) -> None:
    layer = Attention("sliding", 1, 1, 1, 1, window_tokens=window)
    # 2 operations for each of a key and a value: as many tokens as are read, and the new one.
    seen = attention_flops(layer, new=1, past=past) / 4
    assert old_tokens_read(layer, past=past) + 1 == seen


SPARSE = Attention("mla", 8, 8, 24, 16, latent=Latent(32, 8, 16, 16), indexer=Indexer(4, 16, 20))


@given(st.integers(1, 60), st.integers(0, 60))
def test_sparse_attention_looks_at_the_top_k_and_its_indexer_at_everything(
    new: int, past: int
) -> None:
    places = [past + i for i in range(1, new + 1)]
    width = 40 + 32 if new == 1 else 24 + 16
    picked = sum(min(place, 20) for place in places)
    assert attention_flops(SPARSE, new=new, past=past) == 2 * 8 * width * picked
    assert indexer_flops(SPARSE, new=new, past=past) == 2 * 4 * 16 * sum(places)
    assert old_tokens_read(SPARSE, past=past) == min(past, 20)


def test_a_long_context_of_a_sparse_model_is_not_read_whole() -> None:
    """DeepSeek-V3.2 at 131,072 tokens: 61 x 2,048 latents of 1,152 B, and all indexer keys."""
    spec = load_model("deepseek-v3.2").spec()
    moved = decode_work(spec, batch=1, context_tokens=131_072).part("attention").cache_bytes
    assert moved == 61 * (1152 * (2048 + 1) + 132 * 131_072)
    assert moved < 0.15 * 131_072 * kv_bytes_per_token(spec)


def test_a_state_is_written_each_step_and_read_where_there_is_one() -> None:
    spec = load_model("qwen3.5-27b").spec()
    size = state_bytes_per_request(spec)
    assert prefill_work(spec, tokens=64).part("states").cache_bytes == size
    assert decode_work(spec, batch=3, context_tokens=64).part("states").cache_bytes == 6 * size


def test_tables_that_are_looked_up_are_not_read() -> None:
    base = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 5000,
            "vocab_size": 500}  # fmt: skip
    spec = from_hf_config(base)
    count = count_parameters(spec)
    assert count.lookups == 5000 * 64
    weights = decode_work(spec, batch=1, context_tokens=1).weight_bytes
    assert weights == 2 * (count.text - count.lookups)


def test_mla_works_on_the_latent_in_decode_and_on_heads_in_prefill() -> None:
    latent = Latent(kv_rank=512, rope_dim=64, nope_dim=128, v_dim=128)
    layer = Attention("mla", 128, 128, 192, 128, latent=latent)
    assert attention_flops(layer, new=1, past=99) == 2 * 128 * (576 + 512) * 100
    assert attention_flops(layer, new=2, past=0) == 2 * 128 * (192 + 128) * 3


@settings(max_examples=50)
@given(st.integers(1, 64), st.integers(1, 4000), st.floats(0.1, 1e4), st.floats(0.1, 1e4))
def test_bounds_are_ordered(batch: int, context: int, peak: float, bandwidth: float) -> None:
    roof, work = (
        Roof(peak * 1e9, bandwidth * 1e9),
        decode_work(llama(), batch=batch, context_tokens=context),
    )
    low, mid, high = work.lower_bound_s(roof), work.part_bound_s(roof), work.upper_bound_s(roof)
    assert low <= mid * (1 + 1e-9) and mid <= high * (1 + 1e-9) and high <= 2 * low * (1 + 1e-9)


def test_a_larger_batch_shares_the_weights_but_not_the_cache() -> None:
    one = decode_work(llama(), batch=1, context_tokens=64)
    many = decode_work(llama(), batch=16, context_tokens=64)
    assert many.weight_bytes == one.weight_bytes
    assert many.cache_bytes == 16 * one.cache_bytes
    assert many.flops == 16 * one.flops
    assert many.intensity > one.intensity


def test_experts_touched() -> None:
    part = FeedForward(width=8, experts=8, active_experts=2)
    assert expected_experts(part, tokens=1) == pytest.approx(2)
    assert expected_experts(part, tokens=2) == pytest.approx(3.5)
    assert expected_experts(part, tokens=10_000) == pytest.approx(8)


def mixtral():
    return from_hf_config(
        {
            "model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 64,
            "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": 500, "max_position_embeddings": 2048, "num_local_experts": 8,
            "num_experts_per_tok": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        }
    )  # fmt: skip


def test_a_mixture_computes_with_active_experts_and_reads_those_it_touches() -> None:
    spec = mixtral()
    one = decode_work(spec, batch=1, context_tokens=1).part("experts")
    expert = 3 * 64 * 96
    assert one.flops == 2 * 2 * 2 * expert
    assert one.weight_bytes == pytest.approx(2 * 2 * 2 * expert)
    many = decode_work(spec, batch=64, context_tokens=1).part("experts")
    assert many.weight_bytes == pytest.approx(2 * 2 * 8 * expert, rel=1e-6)


@pytest.mark.parametrize(
    "rows", [[], [(0, 5)], [(1, -1)]], ids=["no sequence", "no new token", "negative past"]
)
def test_impossible_steps_are_refused(rows) -> None:
    with pytest.raises(UsageError, match="new >= 1"):
        step_work(llama(), rows)


@pytest.mark.skipif(not HF_CONFIGS.is_dir(), reason="the reference folder is not beside")
def test_every_real_config_can_be_counted() -> None:
    names = sorted(HF_CONFIGS.glob("*.json"))
    assert names
    for path in names:
        spec = from_hf_config(json.loads(path.read_text()))
        step = decode_work(spec, batch=2, context_tokens=512)
        chunk = step_work(spec, [(256, 256), (1, 40)])
        active = count_parameters(spec).active
        assert step.flops >= 2 * 2 * 0.5 * (active - 2 * spec.vocab * spec.hidden), path.name
        assert 0 < step.lower_bound_s(ROOF) < chunk.lower_bound_s(ROOF) * 2, path.name
