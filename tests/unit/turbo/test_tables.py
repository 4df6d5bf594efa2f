"""The table machine against a scalar reference that shares no line with it."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_EVEN, Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.merge import merge
from turbo_lab.turbo.tables import Calibration, TableMachine

getcontext().prec = 40
MACHINE = TableMachine()
WIDTHS = [(8, 8, 4, 6), (4, 8, 4, 2), (8, 6, 0, 3), (6, 8, 6, 8), (2, 4, 2, 1)]


class Scalar:
    """One merge of single values, from the definition: exact fractions and 40 decimal digits."""

    def __init__(self, value_bits: int, gamma_bits: int, fraction_bits: int, weight_bits: int):
        self.value_top = 2 ** (value_bits - 1) - 1
        self.gamma_top = 2**gamma_bits - 1
        self.step = Decimal(1) / 2**fraction_bits
        self.whole = 2 * (2**weight_bits - 1)
        self.known: dict[int, tuple[int, int]] = {}

    def at(self, delta: int) -> tuple[int, int]:
        """(addend, weight code of the smaller part)."""
        if delta not in self.known:
            power = (-(delta * self.step) * Decimal(2).ln()).exp()
            addend = (1 + power).ln() / Decimal(2).ln() / self.step
            weight = power / (1 + power) * self.whole
            self.known[delta] = tuple(
                int(x.to_integral_value(ROUND_HALF_EVEN)) for x in (addend, weight)
            )
        return self.known[delta]

    def product(self, value: int, delta: int, bigger: bool) -> int:
        code = self.at(delta)[1]
        share = Fraction(self.whole - code if bigger else code, self.whole)
        return round(value * share)  # of a Fraction: half to even

    def merge(self, a: int, gamma_a: int, b: int, gamma_b: int) -> tuple[int, int]:
        a_big = gamma_a >= gamma_b
        delta = abs(gamma_a - gamma_b)
        total = self.product(a, delta, a_big) + self.product(b, delta, not a_big)
        value = max(-self.value_top - 1, min(self.value_top, total))
        return value, min(max(gamma_a, gamma_b) + self.at(delta)[0], self.gamma_top)


@pytest.mark.parametrize("side", ["first is bigger", "second is bigger"])
def test_all_pairs_of_values_and_all_differences_bit_for_bit(side: str) -> None:
    """16.7 million merges a side; the reference computes each of its products once."""
    scalar, values = Scalar(8, 8, 4, 6), np.arange(-128, 128)
    codes = values.astype(np.int16)
    first = side == "first is bigger"
    for delta in range(256):
        a = np.array([scalar.product(int(v), delta, first) for v in values])
        b = np.array([scalar.product(int(v), delta, not first) for v in values])
        want = np.minimum(127, np.maximum(-128, a[:, None] + b))
        gamma_a, gamma_b = (delta, 0) if first else (0, delta)
        got, gamma = MACHINE.merge_pair(
            np.repeat(codes, 256), np.int16(gamma_a), np.tile(codes, 256), np.int16(gamma_b)
        )
        np.testing.assert_array_equal(got.reshape(256, 256), want)
        assert int(gamma) == min(delta + scalar.at(delta)[0], 255)


@pytest.mark.parametrize("widths", WIDTHS)
def test_whole_merges_at_other_widths(widths: tuple[int, int, int, int]) -> None:
    machine, scalar, drawn = TableMachine(*widths), Scalar(*widths), random.Random(1)
    for _ in range(400):
        a, b = (drawn.randint(-scalar.value_top - 1, scalar.value_top) for _ in range(2))
        gammas = [drawn.randint(0, scalar.gamma_top) for _ in range(2)]
        got = machine.merge_pair(np.array([a]), gammas[0], np.array([b]), gammas[1])
        assert (int(got[0][0]), int(got[1])) == scalar.merge(a, gammas[0], b, gammas[1])


def test_the_tables_have_the_sizes_of_the_artifact() -> None:
    assert MACHINE.table_entries == {"delta": 256, "products": 2 * 64 * 256}
    assert MACHINE.addends[0] == 16 and MACHINE.weight_codes[0] == 63  # one bit more, one half
    assert MACHINE.weight_codes.max() < 2**6 and MACHINE.weight_codes[-1] == 0
    assert not MACHINE.addends[-1]


@given(st.integers(0, 9999), st.integers(0, 255), st.integers(0, 255))
def test_two_parts_merge_alike_in_either_order(seed: int, gamma_a: int, gamma_b: int) -> None:
    values = np.random.default_rng(seed).integers(-128, 128, (2, 16)).astype(np.int16)
    one = MACHINE.merge_pair(values[0], np.int16(gamma_a), values[1], np.int16(gamma_b))
    other = MACHINE.merge_pair(values[1], np.int16(gamma_b), values[0], np.int16(gamma_a))
    np.testing.assert_array_equal(one[0], other[0])
    assert one[1] == other[1]


@given(st.integers(0, 9999), st.integers(1, 12), st.sampled_from(["chain", "balanced"]))
def test_the_error_against_the_exact_merge_is_bounded(seed: int, parts: int, tree: str) -> None:
    """Per merge: half a step for each product, the weight's half step, gamma's roundings."""
    rng = np.random.default_rng(seed)
    outputs, gammas = rng.uniform(-1, 1, (parts, 3, 16)), rng.uniform(-11.5, 0, (parts, 3))
    fixed = Calibration(np.ones(3), np.zeros(3), headroom=4.0)
    scale, offset = fixed.scale(MACHINE), fixed.offset(MACHINE)
    values = MACHINE.code_values(outputs, scale=scale[:, None])
    codes = MACHINE.code_gamma(gammas, offset=offset)
    got, gamma = MACHINE.merge(values, codes, tree=tree)
    want, weight = merge(outputs, gammas)
    merges = parts - 1
    # gamma: half a step when coded and half a step per merge; a shift of one code moves a weight
    # by ln 2 / 4 / 16 at most, a weight code by 1/252, between values 2 apart; a step of values.
    gamma_steps = 0.5 + 0.5 * merges
    bound = 0.5 / 127 + merges * (1 / 127 + 2 / 252 + 2 * 2 * gamma_steps * np.log(2) / 4 / 16)
    assert np.abs(MACHINE.real_values(got, scale=scale[:, None]) - want).max() <= bound
    assert (
        np.abs(MACHINE.real_gamma(gamma, offset=offset) - weight).max() <= gamma_steps / 16 + 1e-9
    )


def test_an_empty_part_is_code_zero_and_weighs_nothing_beside_a_heavy_one() -> None:
    codes = MACHINE.code_gamma(np.array([-np.inf, 15.0]), offset=0.0)
    assert codes.tolist() == [0, 240]
    got, gamma = MACHINE.merge_pair(np.array([0, 0]), codes[0], np.array([100, -127]), codes[1])
    assert got.tolist() == [100, -127] and int(gamma) == 240


def test_coding_rounds_half_to_even_and_saturates() -> None:
    assert MACHINE.code_values([0.5, 1.5, -2.5, 300, -300], scale=1.0).tolist() == [
        0, 2, -2, 127, -127,
    ]  # fmt: skip
    assert MACHINE.code_gamma([2.5 / 16, 3.5 / 16, 99, -3], offset=0.0).tolist() == [2, 4, 255, 0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"value_bits": 1}, "value_bits is 1; allowed: 2 to 12"),
     ({"weight_bits": 11}, "allowed: 1 to 10"),
     ({"value_bits": 8.5}, "value_bits is 8.5; allowed: a whole number"),
     ({"gamma_fraction_bits": 2.5}, "gamma_fraction_bits is 2.5; allowed: a whole number"),
     ({"gamma_fraction_bits": 9}, "0 to gamma_bits, which is 8")],
)  # fmt: skip
def test_widths_without_tables_are_refused(wrong, said) -> None:
    with pytest.raises(UsageError, match=said):
        TableMachine(**wrong)
    with pytest.raises(UsageError, match="chain, balanced"):
        MACHINE.merge(np.zeros((1, 1, 1), dtype=np.int16), np.zeros((1, 1)), tree="ring")
