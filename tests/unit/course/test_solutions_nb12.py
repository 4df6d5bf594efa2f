"""The solutions of notebook 12 and the package give the same numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.solutions import nb12
from turbo_lab.engines.kv_connector.codec import GROUP, wire_bytes
from turbo_lab.estimate.handover import HandoverCost
from turbo_lab.estimate.prefill import PrefillLaw
from turbo_lab.estimate.transfer import min_reuse_bandwidth_bytes_s
from turbo_lab.models.catalog import load_model
from turbo_lab.models.memory import kv_bytes_per_token

SPEC = load_model("smollm2-135m").spec()
LAW = PrefillLaw(SPEC, 0.02, 4e-11, 4e-11)


@given(st.integers(1, 3000), st.sampled_from([16, 128]))
def test_moved_tokens_and_bytes(prompt: int, block: int) -> None:
    cost = HandoverCost(LAW, kv_bytes_per_token(SPEC, dtype="fp32"), block)
    tokens = nb12.moved_tokens(prompt, block)
    assert tokens == cost.moved_tokens(prompt)
    assert nb12.cache_bytes(tokens, 30, 3, 64, 4) == cost.moved_bytes(prompt)


@given(st.integers(129, 3000), st.floats(0, 0.1))
def test_break_even(prompt: int, fixed_s: float) -> None:
    cost = HandoverCost(LAW, 46_080, 128, fixed_s=fixed_s)
    told = nb12.break_even(
        cost.moved_bytes(prompt), cost.recompute_s(prompt), cost.rest_s(prompt), fixed_s
    )
    assert told == pytest.approx(cost.break_even_bytes_s(prompt))


@given(st.integers(64, 16_384), st.integers(1, 10**6), st.floats(1e9, 1e16))
def test_least_bandwidth(hidden: int, prefix: int, flops: float) -> None:
    told = min_reuse_bandwidth_bytes_s(
        hidden=hidden, prefix_tokens=prefix, peak_flops=flops, query_heads_per_kv_head=3,
        element_bytes=4,
    )  # fmt: skip
    assert nb12.least_bandwidth(hidden, prefix, flops, 3, 4) == pytest.approx(told)


@given(st.integers(1, 10**5))
def test_coded_bytes(values: int) -> None:
    assert nb12.coded_bytes(values, GROUP) == wire_bytes((values,), dtype="float32", wire="int8")


@given(st.lists(st.booleans(), max_size=9))
def test_usable_tokens(arrived: list[bool]) -> None:
    told = nb12.usable_tokens(arrived, 128) // 128
    assert all(arrived[:told]) and (told == len(arrived) or not arrived[told])
