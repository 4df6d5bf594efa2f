"""The packed cache: equal where it must be, exact in bytes, bounded in error elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the cpu environment")
import torch
from transformers import DynamicCache

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.quantized import dequantize, quantize
from turbo_lab.precision.kv_cache import (
    hadamard,
    plain_cache_bytes,
    quantized_cache,
    rotation_matrix,
)
from turbo_lab.precision.kv_cache_outliers import channel_spreads
from turbo_lab.precision.kv_cache_scheme import kv_scheme, layer_cache_bytes
from turbo_lab.precision.kv_cache_store import TokenStore, joined

from .conftest import DIM, HEADS, LAYERS, passes

SCHEMES = {
    "fp32": kv_scheme("fp32"),
    "bf16": kv_scheme("bf16"),
    "fp8 e4m3": kv_scheme("fp8_e4m3", keys="none"),
    "fp8 e5m2": kv_scheme("fp8_e5m2", keys="none"),
    "fp8 with scales": kv_scheme("fp8_e4m3", keys="token"),
    "int8 token": kv_scheme("int8", keys="token"),
    "int8 channel": kv_scheme("int8", block_tokens=8),
    "int4 channel": kv_scheme("int4", block_tokens=8, sink_tokens=3, recent_tokens=5),
    "int4 groups": kv_scheme("int4", keys="token", group_channels=8),
    "int4 rotated": kv_scheme("int4", block_tokens=16, rotation="hadamard"),
    "int2": kv_scheme("int2", keys="token", scale_dtype="bf16"),
}


@pytest.mark.parametrize("step", [60, 7, 1])
def test_a_full_precision_packed_cache_changes_nothing(llama, ids, step):
    plain = DynamicCache(config=llama.config)
    packed = quantized_cache(llama.config, kv_scheme("fp32", sink_tokens=2, recent_tokens=3))
    assert torch.equal(passes(llama, ids, packed, step=step), passes(llama, ids, plain, step=step))
    assert packed.stored_bytes == plain_cache_bytes(plain)
    assert packed.layers[0].stores[0].packed is not None  # it did go through the packed part


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("step", [60, 9])
def test_stored_bytes_equal_the_formula_to_the_byte(llama, ids, name, step):
    cache = quantized_cache(llama.config, SCHEMES[name])
    seen = 0
    with torch.inference_mode():
        for start in range(0, 60, step):
            part = ids[:, start : start + step]
            llama(part, past_key_values=cache, use_cache=True)
            seen += part.shape[1]
            wanted = layer_cache_bytes(
                SCHEMES[name], tokens=seen, kv_heads=HEADS, head_dim=DIM, batch=2
            )
            assert cache.stored_bytes == LAYERS * wanted
    assert cache.get_seq_length() == 60
    cache.reset()
    assert cache.stored_bytes == 0 and cache.get_seq_length() == 0


def test_where_no_token_shares_a_scale_the_chunks_do_not_matter(llama, ids):
    for name in ("fp8 e4m3", "int8 token"):
        caches = [quantized_cache(llama.config, SCHEMES[name]) for _ in range(2)]
        one, many = (passes(llama, ids, c, step=s) for c, s in zip(caches, (60, 7), strict=True))
        assert torch.allclose(one, many, atol=2e-3)


def test_fewer_bits_move_the_output_further(llama, ids):
    reference = passes(llama, ids, DynamicCache(config=llama.config), step=12)

    def error(name: str, **more) -> float:
        cache = quantized_cache(llama.config, kv_scheme(name, block_tokens=12, **more))
        return float((passes(llama, ids, cache, step=12) - reference).abs().mean())

    assert 0 < error("int8") < error("int4") < error("int2")
    assert error("int4") < error("int4", keys="token")  # the offset channel spoils every token
    assert error("bf16", keys="none") < error("fp8_e4m3", keys="none")


def test_generate_takes_the_cache(llama, ids):
    cache = quantized_cache(llama.config, kv_scheme("fp32"))
    options = {"max_new_tokens": 6, "do_sample": False}
    told = llama.generate(ids[:1], past_key_values=cache, **options)
    assert torch.equal(told, llama.generate(ids[:1], **options)) and told.shape[1] == 66
    with pytest.raises(UsageError, match="beam"):
        cache.reorder_cache(torch.tensor([0]))


def test_joining_packed_blocks_equals_packing_each_and_laying_them_side_by_side():
    values = np.random.default_rng(0).normal(size=(24, 2, 3, 16)).astype(np.float32)
    for scheme in (SCHEMES["int4 channel"].keys, SCHEMES["int4 channel"].values,
                   SCHEMES["int4 groups"].keys, SCHEMES["fp8 e4m3"].keys):  # fmt: skip
        parts = [quantize(values[i : i + 8], scheme) for i in (0, 8, 16)]
        whole = None
        for part in parts:
            whole = joined(whole, part)
        assert np.array_equal(dequantize(whole), np.concatenate([dequantize(p) for p in parts]))
        assert whole.bytes == sum(p.bytes for p in parts)
    odd = kv_scheme("int4", keys="token").keys
    with pytest.raises(UsageError, match="inside a byte"):
        joined(quantize(np.ones((1, 1, 1, 3)), odd), quantize(np.ones((1, 1, 1, 3)), odd))


def test_sinks_and_recent_tokens_stay_exact_and_the_rest_is_near():
    plan = kv_scheme("int8", block_tokens=4, sink_tokens=2, recent_tokens=3)
    tokens = torch.randn(1, 2, 15, 8, generator=torch.Generator().manual_seed(0))
    store = TokenStore(plan.keys, plan)
    for start in range(0, 15, 5):
        store.append(tokens[:, :, start : start + 5])
    back = store.read()
    packed = plan.packed_tokens(15)
    assert packed == 8 and store.packed.shape[0] == 8
    for part in (slice(0, 2), slice(2 + packed, 15)):
        assert torch.equal(back[:, :, part], tokens[:, :, part])
    error = (back - tokens)[:, :, 2 : 2 + packed].abs().max()
    assert 0 < error < 8 / 255  # a step of the widest range, half of it twice over


def test_rotations_are_orthogonal_and_are_undone(llama, ids):
    for matrix in (hadamard(16), rotation_matrix("random", size=24, seed=3)):
        assert torch.allclose(matrix @ matrix.T, torch.eye(len(matrix)), atol=1e-5)
    assert rotation_matrix("none", size=8) is None
    with pytest.raises(UsageError, match="power of two"):
        hadamard(24)
    plain = passes(llama, ids, DynamicCache(config=llama.config), step=60)
    for kind in ("hadamard", "random"):
        turned = quantized_cache(llama.config, kv_scheme("fp32", rotation=kind))
        assert torch.allclose(passes(llama, ids, turned, step=60), plain, atol=1e-2)
    one = torch.zeros(1, 1, 4, 16)
    one[..., 5] = 9.0  # one outlier channel becomes sixteen equal ones
    assert (one @ hadamard(16)).abs().max() == pytest.approx(9 / 4)


def test_the_outlier_channel_is_found(llama, ids):
    cache = DynamicCache(config=llama.config)
    passes(llama, ids[:1], cache, step=60)
    spreads = channel_spreads(cache)
    assert [s.side for s in spreads] == ["keys"] * LAYERS + ["values"] * LAYERS
    keys, values = spreads[:LAYERS], spreads[LAYERS:]
    assert all(k.channel in (7, 15) and k.ratio > 3 for k in keys)
    assert max(v.ratio for v in values) < min(k.ratio for k in keys)
    with pytest.raises(UsageError, match="skip_tokens is 60"):
        channel_spreads(cache, skip_tokens=60)


def test_models_with_sliding_windows_are_refused(llama):
    config = llama.config.__class__(**{**llama.config.to_dict()})
    config.layer_types = ["sliding_attention", "full_attention"]
    with pytest.raises(UsageError, match="sliding_attention"):
        quantized_cache(config, kv_scheme("int8"))
