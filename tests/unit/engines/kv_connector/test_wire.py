"""Frames, formats and the store of the KV connector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.kv_connector.codec import GROUP, decode, encode, wire_bytes
from turbo_lab.engines.kv_connector.store import KvStore, prefix_key
from turbo_lab.engines.kv_connector.wire import WireError, framing_bytes, pack, unpack

LAYERS, BLOCK_BYTES = 3, 2 * 4 * 32 * 4
DTYPES = ("float32", "float16", "bfloat16")
json_values = st.one_of(st.integers(-(2**40), 2**40), st.text(max_size=12), st.booleans())
headers = st.dictionaries(st.text(max_size=8), json_values, max_size=5)


def reader(data: bytes) -> Any:
    view = memoryview(data)
    at = 0

    def read(count: int) -> bytes:
        nonlocal at
        if at + count > len(view):
            raise WireError("the other side closed the connection in mid-transfer")
        at += count
        return bytes(view[at - count : at])

    return read


@given(headers, st.binary(max_size=200))
def test_a_frame_comes_back_as_it_was(header: dict, payload: bytes) -> None:
    head, body = pack(header, payload)
    frame = unpack(reader(head + bytes(body)), most_payload_bytes=200)
    assert (frame.header, bytes(frame.payload)) == (header, payload)
    assert len(head) == framing_bytes(header)


@given(headers, st.binary(max_size=60), st.data())
def test_any_changed_bit_or_missing_end_is_an_error(
    header: dict, payload: bytes, data: Any
) -> None:
    head, body = pack(header, payload)
    whole = bytearray(head + bytes(body))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError):
        unpack(reader(bytes(whole)), most_payload_bytes=60)
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WireError):
        unpack(reader((head + bytes(body))[:end]), most_payload_bytes=60)


def test_a_payload_longer_than_due_is_refused_before_it_is_read() -> None:
    head, _ = pack({}, bytes(10))
    with pytest.raises(WireError, match="announces"):
        unpack(reader(head), most_payload_bytes=9)  # no payload follows, none is asked for


@given(
    st.sampled_from(DTYPES), st.integers(1, 3 * GROUP), st.integers(0, 2**32 - 1),
    st.floats(1e-3, 1e3),
)  # fmt: skip
def test_formats_cost_what_they_say_and_keep_what_they_promise(
    dtype: str, count: int, seed: int, size: float
) -> None:
    values = np.random.default_rng(seed).normal(size=count) * size
    stored = as_stored(values, dtype)
    held = as_values(stored, dtype)
    for wire in ("raw", "fp16", "int8"):
        sent = encode(stored, dtype=dtype, wire=wire)
        assert sent.nbytes == wire_bytes((count,), dtype=dtype, wire=wire)
        back = as_values(decode(sent, shape=(count,), dtype=dtype, wire=wire), dtype)
        error, most = np.abs(back - held), allowed_error(held, wire=wire)
        rounding = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
        assert (error <= most + rounding * (np.abs(held) + most) + 1e-7).all()


def allowed_error(held: np.ndarray, *, wire: str) -> np.ndarray:
    """Half a step of the format, and what rounding the scale to fp16 adds."""
    if wire == "raw":
        return np.zeros_like(held)
    if wire == "fp16":
        return 2.0**-11 * np.abs(held)
    starts = range(0, len(held), GROUP)
    steps = np.array([np.abs(held[start : start + GROUP]).max() / 127.5 for start in starts])
    each = np.repeat(steps, GROUP)[: len(held)]
    return 0.5 * each + 127.5 * (2.0**-11 * each + 2.0**-25)


def as_stored(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype(dtype).view(np.uint8)


def as_values(stored: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (stored.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return stored.view(dtype).astype(np.float32)


def test_unknown_formats_are_refused_with_the_allowed_ones() -> None:
    with pytest.raises(UsageError, match="Allowed: fp16, int8, raw"):
        wire_bytes((4,), dtype="float32", wire="int4")
    with pytest.raises(UsageError, match="KV dtype"):
        wire_bytes((4,), dtype="float64")
    with pytest.raises(UsageError, match="wanted are 16"):
        decode(np.zeros(3, np.uint8), shape=(4,), dtype="float32", wire="raw")


def test_the_store_pushes_out_what_was_unused_longest(kit: Any) -> None:
    prefix = kit.prefix
    size = prefix("a").size_bytes
    assert size == 3 * LAYERS * BLOCK_BYTES
    store = KvStore(limit_bytes=2 * size)
    for name in ("a", "b"):
        store.put(prefix(name))
    assert store.get("a") is not None
    store.put(prefix("c"))
    assert [name in store for name in "abc"] == [True, False, True]
    store.put(prefix("large", blocks=7))
    assert "large" not in store and store.size_bytes == 2 * size
    with pytest.raises(UsageError, match="limit_bytes"):
        KvStore(limit_bytes=0)


def test_keys_name_the_tokens_and_the_model() -> None:
    keys = {prefix_key(t, model=m) for t in ([1, 2], [2, 1], [1, 2, 3]) for m in ("a", "b")}
    assert len(keys) == 6 and prefix_key([1, 2], model="a") in keys
