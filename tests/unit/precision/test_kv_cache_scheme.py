"""The byte formula and the schemes, without torch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.kv_cache_scheme import (
    KvScheme,
    bits_per_element,
    kv_scheme,
    layer_cache_bytes,
)

SIZES = {"kv_heads": 3, "head_dim": 64}


def test_plain_formats_take_their_own_width():
    for name, width in (("fp32", 4), ("bf16", 2), ("fp8_e4m3", 1), ("fp8_e5m2", 1)):
        found = layer_cache_bytes(kv_scheme(name, keys="none"), tokens=100, **SIZES)
        assert found == 100 * 3 * 2 * 64 * width


def test_int4_by_hand():
    # 128 tokens, 4 blocks of 32. Codes: 2 * 128*3*64 / 2. K: a scale and a smallest value (2 bytes
    # each) per block, head and channel; V: the same per token and head.
    by_hand = 128 * 3 * 64 + 4 * 3 * 64 * 4 + 128 * 3 * 4
    assert layer_cache_bytes(kv_scheme("int4"), tokens=128, **SIZES) == by_hand
    # 20 more tokens fill no block: they stay in fp32.
    assert layer_cache_bytes(kv_scheme("int4"), tokens=148, **SIZES) == by_hand + 20 * 3 * 128 * 4


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(0, 400), sink=st.integers(0, 8), recent=st.integers(0, 64),
    block=st.sampled_from([1, 8, 32]), batch=st.integers(1, 3),
)  # fmt: skip
def test_parts_add_up_and_less_is_never_more(tokens, sink, recent, block, batch):
    plan = kv_scheme("int4", block_tokens=block, sink_tokens=sink, recent_tokens=recent)
    packed = plan.packed_tokens(tokens)
    assert packed % block == 0 and 0 <= packed <= max(0, tokens - sink - recent)
    assert tokens - packed < sink + recent + block + 1
    size = layer_cache_bytes(plan, tokens=tokens, batch=batch, **SIZES)
    assert size == batch * layer_cache_bytes(plan, tokens=tokens, **SIZES)
    if packed and block == 32:
        assert size < layer_cache_bytes(kv_scheme("fp32"), tokens=tokens, batch=batch, **SIZES)


def test_scales_of_small_blocks_eat_the_gain():
    wide = bits_per_element(kv_scheme("int4", block_tokens=128), tokens=1024, **SIZES)
    small = bits_per_element(kv_scheme("int4", block_tokens=8), tokens=1024, **SIZES)
    assert 4 < wide < 4.5 and small > 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kv_scheme("int4", keys="row"), "channel"),
        (lambda: kv_scheme("int4", recent_tokens=-1), "recent_tokens is -1"),
        (lambda: kv_scheme("int4", block_tokens=0), "0"),
        (lambda: kv_scheme("int4", rotation="hadamar"), "hadamard"),  # type: ignore[arg-type]
        (lambda: kv_scheme("int4", keys="none"), "scale"),
        (lambda: KvScheme(keys=Scheme("int8", "tensor"), values=Scheme("int8", "token")), "tensor"),
        (
            lambda: KvScheme(
                keys=Scheme("int8", "token", zero="code"), values=Scheme("int8", "token")
            ),
            "value",
        ),
        (
            lambda: KvScheme(
                keys=Scheme("int8", "group", axis=0, group_size=3),
                values=Scheme("int8", "token"), block_tokens=32,
            ),
            "groups of 3 tokens",
        ),
        (lambda: layer_cache_bytes(kv_scheme("int8"), tokens=-1, **SIZES), "tokens is -1"),
    ],
)  # fmt: skip
def test_impossible_schemes_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()
