"""Compressed messages: their bytes, and the link speed from which they lose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.network.compression import (
    FORMATS,
    Compression,
    all_reduce_payload_bytes,
    message_bytes,
)
from turbo_lab.network.cost import busbw_factor

BYTES = st.floats(1, 1e9)


def test_bytes_of_every_format() -> None:
    found = {form: message_bytes(1000, form=form) for form in FORMATS}
    assert found == {"fp32": 4000, "fp16": 2000, "bf16": 2000, "int8": 1016, "topk": 80}


@given(ranks=st.integers(2, 16), elements=st.integers(1, 10**6))
def test_codes_that_cannot_be_summed_lose_their_gain_with_more_ranks(
    ranks: int, elements: int
) -> None:
    plain = all_reduce_payload_bytes(elements, ranks=ranks, form="fp32")
    assert plain == pytest.approx(4 * elements * busbw_factor("all_reduce", ranks))
    assert all_reduce_payload_bytes(elements, ranks=ranks, form="fp16") == plain / 2
    coded = all_reduce_payload_bytes(elements, ranks=ranks, form="int8")
    assert coded == (ranks - 1) * message_bytes(elements, form="int8")
    if ranks >= 8:
        assert coded > plain


@given(
    plain=BYTES, share=st.floats(0.01, 0.99), coding=st.floats(1e-6, 1), rate=st.floats(1e3, 1e12)
)
def test_it_pays_below_the_break_even_rate_only(
    plain: float, share: float, coding: float, rate: float
) -> None:
    one = Compression(plain, share * plain, coding)
    limit = one.break_even_bytes_s
    assert one.speedup(limit) == pytest.approx(1.0)
    assert (one.speedup(rate) > 1 + 1e-9) <= (rate < limit)
    assert one.speedup(rate) < 1 / share + 1e-9


def test_what_saves_nothing_never_pays() -> None:
    assert Compression(100, 100, 0.1).break_even_bytes_s == 0
    assert Compression(100, 50, 0.0).break_even_bytes_s == float("inf")
    with pytest.raises(UsageError, match=r"no format 'fp8'"):
        message_bytes(10, form="fp8")
    with pytest.raises(UsageError, match="above 0 up to 1"):
        message_bytes(10, form="topk", kept_share=0)
