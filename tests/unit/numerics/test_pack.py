"""Packing: exact inverse, counted bytes, and the word layout of real checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.pack import pack, packed_bytes, unpack

WIDTHS = (1, 2, 4, 8, 16, 32)


@settings(deadline=None)
@given(st.sampled_from(WIDTHS), st.integers(0, 70), st.randoms(use_true_random=False))
def test_unpack_inverts_pack_and_bytes_follow_the_formula(bits: int, count: int, random) -> None:
    codes = np.array([random.getrandbits(bits) for _ in range(count)], dtype=np.uint32)
    payload = pack(codes, bits=bits)
    assert payload.dtype == np.uint8 and payload.nbytes == packed_bytes(count, bits=bits)
    assert packed_bytes(count, bits=bits) == (count * bits + 7) // 8
    assert np.array_equal(unpack(payload, bits=bits, count=count), codes)


def test_first_code_lies_in_the_lowest_bits() -> None:
    assert pack(np.array([0x1, 0xF, 0x2]), bits=4).tolist() == [0xF1, 0x02]
    assert pack(np.arange(8), bits=4).view("<u4").tolist() == [0x76543210]


def test_wrong_codes_and_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match=r"codes from 3 to 16 do not fit 4 bits; allowed: 0 to 15"):
        pack(np.array([3, 16]), bits=4)
    with pytest.raises(UsageError, match="payload has 2 bytes; 5 codes of 4 bits need 3"):
        unpack(np.zeros(2, dtype=np.uint8), bits=4, count=5)
    with pytest.raises(UsageError, match="bits is 3; allowed: 1, 2, 4, 8"):
        packed_bytes(8, bits=3)


def test_words_equal_those_of_compressed_tensors() -> None:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    helpers = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    codes = np.random.default_rng(0).integers(0, 16, size=(6, 64))
    theirs = helpers.pack_to_int32(torch.from_numpy(codes - 8).to(torch.int8), 4)
    mine = pack(codes, bits=4).view("<i4").reshape(6, 8)
    assert np.array_equal(mine, theirs.numpy())
