"""The noise floor: where it comes from, and how many repeats a verdict takes."""

from __future__ import annotations

import itertools

import pytest

from turbo_lab.experiment import noise
from turbo_lab.experiment.arms import LEAST_SAMPLES
from turbo_lab.metrics.repeats import error_of_median

ARMS = ([1.0, 1.02, 0.98, 1.01, 0.99], [1.0, 1.1, 0.9, 1.05, 0.95])


def store(folder, count: int, effect: float) -> None:
    for index in range(count):
        noise.store_run("k", effect=effect, interval=(-0.02, 0.02), digests=[str(index), "b"],
                        facts={}, folder=folder)  # fmt: skip


def floor(folder, *, one_start: bool) -> noise.NoiseFloor:
    return noise.noise_floor("k", arms=ARMS, one_start=one_start, folder=folder)


def test_without_an_aa_run_restarts_give_the_floor_and_one_start_an_assumed_one(tmp_path):
    assert floor(tmp_path, one_start=False).value == max(map(error_of_median, ARMS))
    found = floor(tmp_path, one_start=True)
    assert found.value == noise.ASSUMED_FLOOR and found.source.startswith("assumed")


def test_aa_runs_replace_it_and_few_of_single_starts_are_not_believed_to_be_calm(tmp_path):
    store(tmp_path, noise.TRUSTED_RUNS - 1, 0.03)
    assert floor(tmp_path, one_start=False).value == 0.03
    assert floor(tmp_path, one_start=True).value == noise.ASSUMED_FLOOR
    store(tmp_path, noise.TRUSTED_RUNS, 0.03)
    found = floor(tmp_path, one_start=True)
    assert (found.value, found.runs) == (0.03, noise.TRUSTED_RUNS)


def test_a_damaged_store_counts_as_none(tmp_path):
    (tmp_path / "k.json").write_text("{ torn")
    assert floor(tmp_path, one_start=True).runs == 0


@pytest.mark.parametrize(("count", "can"), [(3, False), (LEAST_SAMPLES, True)])
def test_w19_three_against_three_can_never_be_significant_five_against_five_can(count, can):
    """Exact two-sided rank test: all values of one side below the other is the extreme case."""
    ranks = range(2 * count)
    sums = [sum(s) for s in itertools.combinations(ranks, count)]
    lowest = sum(ranks[:count])
    p = 2 * sum(s <= lowest for s in sums) / len(sums)
    assert (p < 0.05) is can and (p >= 0.1) is not can


@pytest.mark.parametrize(
    "runs",
    [
        "null",
        "7",
        '[{"effect": "x", "interval": [0, 1]}]',
        '[{"effect": 0.1}]',
        '[{"effect": 0.1, "interval": [1]}]',
    ],
)
def test_a_damaged_floor_counts_as_none(tmp_path, runs):
    (tmp_path / "k.json").write_text(f'{{"runs": {runs}}}')
    assert noise.read_runs("k", folder=tmp_path) == []
    assert floor(tmp_path, one_start=True).source.startswith("assumed")
