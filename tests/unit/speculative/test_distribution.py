"""The distribution test: its rate of false alarms, its stated power, and wrong rules caught."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.speculative.accept import LOSSLESS, Rule, accept, one_hot
from turbo_lab.speculative.distribution import same_distribution

TARGET = np.array([0.45, 0.3, 0.15, 0.1])


def counts(rng: np.random.Generator, shares: np.ndarray, samples: int) -> dict[int, int]:
    return dict(enumerate(rng.multinomial(samples, shares).tolist()))


def verdicts(one: np.ndarray, other: np.ndarray, *, runs: int, samples: int, prompts: int = 1):
    rng = np.random.default_rng(0)
    for seed in range(runs):
        yield same_distribution(
            [counts(rng, one, samples) for _ in range(prompts)],
            off=[counts(rng, other, samples) for _ in range(prompts)],
            level=0.05, permutations=100, seed=seed,
        )  # fmt: skip


@pytest.mark.parametrize("prompts", [1, 3])
def test_rate_of_false_alarms(prompts: int) -> None:
    runs = 120
    found = list(verdicts(TARGET, TARGET, runs=runs, samples=60, prompts=prompts))
    alarms = sum(test.verdict == "differ" for test in found)
    assert alarms / runs < 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert alarms > 0  # a test that never alarms would pass the line above


@pytest.mark.parametrize("prompts", [1, 3])
def test_the_visible_distance_is_seen_as_often_as_promised(prompts: int) -> None:
    """The least visible shape: half of the probability gains what the other half loses."""
    even = np.full(4, 0.25)
    first = next(verdicts(even, even, runs=1, samples=100, prompts=prompts))
    shift = first.visible_distance * np.array([1, 1, -1, -1]) / 2
    runs = 100
    found = verdicts(even + shift / 2, even - shift / 2, runs=runs, samples=100, prompts=prompts)
    seen = sum(test.verdict == "differ" for test in found) / runs
    assert abs(seen - 0.8) < 0.12  # 3 sigma of 100 runs


def test_more_samples_see_smaller_distances() -> None:
    few, many = (
        next(verdicts(TARGET, TARGET, runs=1, samples=n)).visible_distance for n in (50, 5000)
    )
    assert many == pytest.approx(few / 10, rel=0.01)


def generated(rule: Rule, *, samples: int, seed: int) -> Counter:
    """Tokens written after a looked-up guess (token 1), as n-gram speculation does it."""
    rng, guess = np.random.default_rng(seed), one_hot([1], vocabulary=4)
    return Counter(
        accept([1], draft_probs=guess, target_probs=np.stack([TARGET] * 2), rng=rng, rule=rule)
        .tokens[0]
        for _ in range(samples)
    )  # fmt: skip


def test_wrong_acceptance_is_caught_and_the_right_one_is_not() -> None:
    off = [counts(np.random.default_rng(5), TARGET, 600)]
    right = same_distribution([generated(LOSSLESS, samples=600, seed=1)], off=off)
    assert right.verdict == "no difference shown" and right.p_value > 0.01
    wrong = Rule(redraw=lambda draft, target: target)  # the guess gets a second chance
    caught = same_distribution([generated(wrong, samples=600, seed=1)], off=off)
    assert caught.verdict == "differ" and caught.p_value < 0.001
    assert caught.distance > caught.visible_distance > right.distance
    assert "would be seen in 80% of cases" in str(right)


def test_p_value_is_exact_on_a_table_that_can_be_enumerated() -> None:
    """5 and 5 samples, all apart: 2 of the C(10, 5) = 252 relabellings are as far apart."""
    found = same_distribution([{"a": 5}], off=[{"b": 5}], permutations=20_000, seed=3)
    assert found.p_value == pytest.approx(2 / 252, abs=3 * np.sqrt(2 / 252 / 20_000))
    assert found.statistic == pytest.approx(2 * 10 * np.log(2)) and found.distance == 1


def test_the_statistic_is_that_of_scipy() -> None:
    from scipy.stats import chi2_contingency

    on, off = {"a": 30, "b": 12, "c": 8}, {"a": 60, "b": 50, "c": 9}
    known = chi2_contingency([[*on.values()], [*off.values()]], lambda_="log-likelihood")
    found = same_distribution([on], off=[off], permutations=20_000)
    assert found.statistic == pytest.approx(known.statistic)
    assert found.p_value == pytest.approx(known.pvalue, abs=0.02)  # scipy's is an approximation


def test_prompts_are_not_mixed() -> None:
    """Arms that agree in every prompt agree, however much the prompts differ from each other."""
    on = [{"yes": 90, "no": 10}, {"yes": 10, "no": 90}]
    same = same_distribution(on, off=on)
    assert same.statistic == pytest.approx(0, abs=1e-9) and same.p_value == 1
    swapped = same_distribution(on, off=on[::-1])
    assert swapped.verdict == "differ" and swapped.samples == (200, 200)


def test_rare_outcomes_are_counted_as_one() -> None:
    on = {"a": 50, **{f"once {i}": 1 for i in range(10)}}
    off = {"a": 50, **{f"never {i}": 1 for i in range(10)}}
    found = same_distribution([on], off=[off])
    assert found.outcomes == 2 and found.p_value == 1


def test_it_says_when_it_cannot_tell() -> None:
    always = same_distribution([{"a": 50}], off=[{"a": 40}])
    assert always.verdict == "cannot tell" and "no distance would be seen" in str(always)
    few = same_distribution([{"a": 2, "b": 3}], off=[{"a": 3, "b": 2}])
    assert few.verdict == "cannot tell" and few.visible_distance is None


def test_equal_seeds_give_equal_p_values() -> None:
    arms = {"on": [{"a": 30, "b": 20}], "off": [{"a": 20, "b": 30}]}
    one, other = (same_distribution(arms["on"], off=arms["off"], seed=7) for _ in range(2))
    assert one == other


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: same_distribution([], off=[]), "0 and 0 prompts"),
        (lambda: same_distribution([{"a": 1}], off=[{"a": 1}] * 2), "1 and 2 prompts"),
        (lambda: same_distribution([{}], off=[{"a": 1}]), "prompt 0: each arm needs samples"),
        (lambda: same_distribution([{"a": -1}], off=[{"a": 1}]), "no count below 0"),
        (lambda: same_distribution([{"a": 1}], off=[{"a": 1}], level=0), "0 < level"),
        (lambda: same_distribution([{"a": 1}], off=[{"a": 1}], permutations=50), "at least 1 / le"),
    ],
)
def test_wrong_use_is_named(call, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
