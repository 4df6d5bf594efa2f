"""Properties of the memory formulas, and the famous wrong ones that they are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GiB
from turbo_lab.estimate.capacity import pool_layout
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.models.catalog import catalog_ids, find_model, load_model
from turbo_lab.models.memory import (
    indexer_bytes_per_token,
    kv_bytes_per_token,
    kv_bytes_per_token_growing,
    kv_cache_bytes,
    kv_heads_per_rank,
)
from turbo_lab.models.spec import from_hf_config

SMALL_MODELS = ("llama-3.1-8b", "gpt-oss-20b", "deepseek-v3.2", "llama-4-scout", "qwen3.5-27b")


def test_the_seed_example_is_four_gib() -> None:
    spec = load_model("llama-3.1-8b").spec()
    assert kv_cache_bytes(spec, batch=8, context_tokens=4096) == 4 * GiB


@pytest.mark.parametrize(
    ("model", "stored", "growing", "indexer"),
    [("gpt-oss-20b", 49_152, 24_576, 0), ("llama-4-scout", 196_608, 49_152, 0),
     ("deepseek-v3.2", 70_272, 70_272, 8_052)],
)  # fmt: skip
def test_the_definitions_on_the_documented_examples(
    model: str, stored: int, growing: int, indexer: int
) -> None:
    spec = load_model(model).spec()
    assert kv_bytes_per_token(spec) == stored
    assert kv_bytes_per_token_growing(spec) == growing
    assert indexer_bytes_per_token(spec) == indexer


@given(
    model=st.sampled_from(SMALL_MODELS),
    batch=st.integers(0, 64),
    tokens=st.integers(0, 200_000),
    more=st.integers(0, 5_000),
)
def test_size_grows_with_tokens_and_is_linear_in_the_batch(
    model: str, batch: int, tokens: int, more: int
) -> None:
    spec = find_model(model)
    one = kv_cache_bytes(spec, batch=1, context_tokens=tokens)
    assert kv_cache_bytes(spec, batch=batch, context_tokens=tokens) == batch * one
    longer = kv_cache_bytes(spec, batch=1, context_tokens=tokens + more)
    assert one + more * kv_bytes_per_token_growing(spec) <= longer
    assert longer <= one + more * kv_bytes_per_token(spec)


def test_a_window_caps_what_its_layers_keep() -> None:
    spec = load_model("gpt-oss-20b").spec()
    beyond = kv_cache_bytes(spec, batch=1, context_tokens=10_000)
    assert beyond == 24_576 * 10_000 + 24_576 * 128


@given(kv_heads=st.integers(1, 64), ranks=st.integers(1, 64))
def test_heads_divide_or_are_copied_never_vanish(kv_heads: int, ranks: int) -> None:
    if kv_heads % ranks and ranks % kv_heads:
        with pytest.raises(UsageError, match="tensor_parallel"):
            kv_heads_per_rank(kv_heads, tensor_parallel=ranks)
        return
    held = kv_heads_per_rank(kv_heads, tensor_parallel=ranks)
    assert held >= 1
    assert held * ranks >= kv_heads


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("bf16", 512), ("fp16", 512), ("fp32", 1024), ("fp8", 256), ("int8", 256), ("nvfp4", 144),
     ("fp8_per_token_head", 264), ("int4_per_token_head", 136)],
)  # fmt: skip
def test_bytes_of_one_head_of_128_in_every_format(dtype: str, expected: int) -> None:
    spec = load_model("llama-3.1-8b").spec()
    assert kv_bytes_per_token(spec, dtype=dtype) == 32 * 8 * expected


def test_packed_formats_are_for_latents_only() -> None:
    latent = load_model("deepseek-v3.2").spec()
    assert kv_bytes_per_token(latent, dtype="fp8_ds_mla") == 40_016
    for model, dtype in (("llama-3.1-8b", "fp8_ds_mla"), ("deepseek-v3", "nvfp4")):
        with pytest.raises(UsageError, match=dtype):
            kv_bytes_per_token(load_model(model).spec(), dtype=dtype)


FP8_CACHE = {"num_bits": 8, "type": "float", "dynamic": False, "strategy": "tensor"}


@pytest.mark.parametrize(
    ("quantization", "per_head"),
    [({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": FP8_CACHE}, 256),
     ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}, 256),
     ({"quant_method": "modelopt_fp4", "kv_cache_quant_algo": "NVFP4"}, 144),
     ({"quant_method": "modelopt", "kv_cache_scheme": {**FP8_CACHE, "dynamic": True}}, 512),
     ({"quant_method": "modelopt", "quant_algo": "FP8"}, 512),
     ({"quant_method": "compressed-tensors", "kv_cache_scheme": FP8_CACHE}, 256),
     ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, 512),
     ({"quant_method": "fp8"}, 512)],
)  # fmt: skip
def test_an_automatic_cache_is_what_the_checkpoint_asks_for(
    quantization: dict, per_head: int
) -> None:
    config = {**load_model("llama-3.1-8b").config, "quantization_config": quantization}
    spec = from_hf_config(config)
    assert kv_bytes_per_token(spec, dtype="auto") == 32 * 8 * per_head
    assert kv_bytes_per_token(spec) == 32 * 8 * 512
    asked = pool_layout(spec, max_len=512, deployment=Deployment(dtype="bfloat16"))
    assert asked.bytes_per_block == (16 * 32 * 8 * per_head,)


def test_bad_input_is_named() -> None:
    spec = load_model("llama-3.1-8b").spec()
    with pytest.raises(UsageError, match="batch is -1"):
        kv_cache_bytes(spec, batch=-1, context_tokens=1)
    with pytest.raises(UsageError, match="fp7.*Allowed"):
        kv_cache_bytes(spec, batch=1, context_tokens=1, dtype="fp7")
    with pytest.raises(UsageError, match="qwen3-8b"):
        load_model("qwen3-8")


def test_catalogue_ids_are_file_names_and_aliases_resolve() -> None:
    assert len(catalog_ids()) >= 40
    assert load_model("Qwen/Qwen3-8B").id == "qwen3-8b"


WRONG = {
    "attention heads for KV heads": (
        "llama-3.1-8b", lambda s: 2 * 32 * s.query_heads * s.head_dim_k * 2),
    "hidden over heads for head_dim": (
        "qwen3-0.6b", lambda s: 2 * 28 * s.kv_heads * (s.hidden // s.query_heads) * 2),
    "MLA priced as multi-head": (
        "deepseek-v3", lambda s: 61 * s.query_heads * (s.head_dim_k + s.head_dim_v) * 2),
    "group size for number of groups": (
        "qwen2.5-7b", lambda s: 2 * 28 * (s.query_heads // s.kv_heads) * s.head_dim_k * 2),
    "KV dtype taken from the weights' dtype": (
        "minimax-m2.5", lambda s: 62 * s.kv_heads * 2 * s.head_dim_k * 1),
    "the factor 2 is missing": (
        "qwen3-8b", lambda s: 36 * s.kv_heads * s.head_dim_k * 2),
    "every layer of a hybrid counted": (
        "qwen3.5-27b", lambda s: 64 * s.kv_heads * 2 * s.head_dim_k * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_famous_wrong_formulas_differ_on_a_real_model(name: str) -> None:
    model, formula = WRONG[name]
    spec = load_model(model).spec()
    assert formula(spec) != kv_bytes_per_token(spec)
