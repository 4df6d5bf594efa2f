"""Solutions of notebook 13 against the package."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.solutions import nb13
from turbo_lab.turbo import pays
from turbo_lab.turbo.aggregate import Aggregator, Outcome
from turbo_lab.turbo.merge import merge
from turbo_lab.turbo.strategies import busiest_load
from turbo_lab.turbo.tables import TableMachine

number = st.floats(-50, 50)


@given(number, number, number, number)
def test_the_merge_is_the_packages(a, x, b, y):
    out, gamma = merge(np.array([[[a]], [[b]]]), np.array([[x], [y]]))
    assert nb13.merge_base2(a, x, b, y) == pytest.approx((out[0, 0], gamma[0]), abs=1e-9)


@pytest.mark.parametrize("fraction", [0, 3, 4])
@pytest.mark.parametrize("bits", [2, 6])
def test_table_entries_are_the_machines(fraction, bits):
    machine = TableMachine(gamma_fraction_bits=fraction, weight_bits=bits)
    for delta in range(256):
        want = int(machine.addends[delta]), int(machine.weight_codes[delta])
        assert nb13.table_entry(delta, fraction, bits) == want


@given(st.lists(st.integers(0, 3), max_size=12))
def test_the_bitmap_is_the_switchs(senders):
    switch, bitmap = Aggregator(TableMachine(), contributors=4), 0
    for sender in senders:
        found = switch.add((0, 0, 0), 0, contributor=sender, values=b"x", gamma=1)
        bitmap, merged, complete = nb13.accept(bitmap, sender, 4)
        assert merged == (found in (Outcome.WAITING, Outcome.COMPLETE))
        assert complete == (found is Outcome.COMPLETE)
        assert bitmap == switch.bitmap((0, 0, 0), 0)


@pytest.mark.parametrize("strategy", ["ring", "gather", "in-network"])
@pytest.mark.parametrize("hosts", [2, 5, 8])
def test_link_bytes_are_the_strategys(strategy, hosts):
    assert nb13.link_bytes(strategy, hosts, 7, 32) == busiest_load(strategy, hosts=hosts) * 7 * 48


def test_the_break_even_is_the_packages():
    work = pays.MergeWork(layers=32, vectors=32, dim=128)
    link = {"strategy": "ring", "hosts": 4, "rate_bytes_s": 1e9, "delay_s": 1e-6}
    memory = {"kv_bytes_per_token": 131_072, "bandwidth_bytes_s": 3e12}
    want = pays.break_even_tokens(work=work, **link, **memory)
    merge_s = pays.merge_s(work, **link)
    assert nb13.break_even_tokens(merge_s, *memory.values(), 4) == pytest.approx(want)
