"""The recorded survey holds what the course promises of its cost model and its links."""

from __future__ import annotations

from functools import cache

from turbo_lab.core.units import KiB, MiB
from turbo_lab.network.accuracy import held_out_accuracy, together
from turbo_lab.network.cost import busbw
from turbo_lab.parallel.survey import Surveyed, by_pass, points
from turbo_lab.records import store
from turbo_lab.records.schema import Record

GIGABIT_BYTES_S = 1.25e8


@cache
def record() -> Record:
    return store.load(store.find("nb11", effort="quick"))


def rows() -> list[Surveyed]:
    data = next(one.data for one in record().observations if one.name == "survey")
    return [Surveyed.from_dict(row) for row in data]


def test_held_out_sizes_are_within_15_percent_or_the_noise() -> None:
    found = rows()
    assert {row.ranks for row in found} == {2, 3, 4} and not any(row.wrong for row in found)
    sizes = {row.size_bytes for row in found if row.kind == "all_reduce"}
    assert (min(sizes), max(sizes)) == (KiB, 16 * MiB)
    accuracy = held_out_accuracy(by_pass(found))
    assert len(accuracy) == 9
    assert together(accuracy).within()
    for one in accuracy:
        if one.kind == "all_reduce":
            assert one.within(), (one.ranks, one.median, one.same_again)


def test_the_all_reduce_fills_the_link() -> None:
    for ranks in (2, 3, 4):
        size, seconds = points(rows(), kind="all_reduce", ranks=ranks)[-1]
        assert 0.85 <= busbw("all_reduce", size, seconds, ranks) / GIGABIT_BYTES_S < 1.0


def test_the_record_names_the_kind_of_hosts() -> None:
    hosts = next(one.data for one in record().observations if one.name == "hosts")
    assert hosts["kind"] == "namespaces" and hosts["link"] == "1 Gbit/s, MTU 1500"
