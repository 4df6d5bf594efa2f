"""Rejection sampling writes the target's distribution: exactly, by chance, and over two tokens.

Every test of the rule is also run on wrong rules, which it must catch.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.speculative.accept import (
    LOSSLESS,
    Rule,
    accept,
    accept_greedy,
    acceptance_rate,
    emitted_distribution,
    keep_chance,
    one_hot,
    residual,
)

WRONG = {
    "draws from the target": Rule(redraw=lambda draft, target: target),
    "residual not normalised": Rule(redraw=lambda draft, target: np.maximum(0.0, target - draft)),
    "keeps all": Rule(keep=lambda draft, target: np.ones_like(target)),
    "keeps by the target alone": Rule(keep=lambda draft, target: target),
    "keeps by the draft": Rule(keep=lambda draft, target: draft),
}
DRAWS = 3_000
DRAFT = np.array([0.5, 0.3, 0.15, 0.05])
TARGET = np.array([0.2, 0.45, 0.15, 0.2])  # two tokens share the residual


@st.composite
def distributions(draw: st.DrawFn, rows: int = 2) -> np.ndarray:
    """``rows`` distributions over one small vocabulary, zeros included."""
    size = draw(st.integers(2, 6))
    weights = st.lists(st.integers(0, 20), min_size=size, max_size=size).filter(any)
    raw = np.array([draw(weights) for _ in range(rows)], dtype=float)
    return raw / raw.sum(axis=1, keepdims=True)


@given(distributions())
def test_what_comes_out_is_the_target(pair: np.ndarray) -> None:
    draft, target = pair
    out = emitted_distribution(draft, target_probs=target)
    assert out == pytest.approx(target, abs=1e-12)


@given(distributions())
def test_the_same_written_out(pair: np.ndarray) -> None:
    """sum over guesses of q min(1, p/q), and the rejected mass spread over the residual."""
    draft, target = pair
    out, rejected = np.zeros(len(draft)), 0.0
    for token, chance in enumerate(draft):
        kept = min(1.0, target[token] / chance) if chance else 0.0
        out[token] += chance * kept
        rejected += chance * (1 - kept)
    surplus = [max(0.0, p - q) for p, q in zip(target, draft, strict=True)]
    if rejected > 1e-12:
        out += rejected * np.array(surplus) / sum(surplus)
    assert out == pytest.approx(target, abs=1e-12)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_write_something_else(name: str) -> None:
    out = emitted_distribution(DRAFT, target_probs=TARGET, rule=WRONG[name])
    assert np.abs(out - TARGET).sum() > 0.05


@given(distributions())
def test_acceptance_is_one_less_the_distance(pair: np.ndarray) -> None:
    draft, target = pair
    found = acceptance_rate(draft, target_probs=target)
    assert found == pytest.approx(1 - 0.5 * np.abs(draft - target).sum())
    assert found == pytest.approx((draft * keep_chance(draft, target)).sum())
    assert acceptance_rate(pair, target_probs=pair[::-1]) == pytest.approx([found, found])


@given(distributions(rows=1), st.integers(0, 5))
def test_a_certain_guess_is_kept_with_the_targets_chance(row: np.ndarray, pick: int) -> None:
    """A looked-up token, or the best token of a draft: alpha is p of that token."""
    target, token = row[0], pick % row.shape[1]
    certain = one_hot([token], vocabulary=len(target))
    assert acceptance_rate(certain[0], target_probs=target) == pytest.approx(target[token])
    assert emitted_distribution(certain[0], target_probs=target) == pytest.approx(target)
    if 0 < target[token] < 1:
        assert residual(certain[0], target)[token] == 0


def chance_of(counts: Counter, exact: dict, *, draws: int) -> float:
    """Largest distance from the exact shares, in standard errors of each share."""
    errors = []
    for key, share in exact.items():
        error = np.sqrt(share * (1 - share) / draws)
        errors.append(abs(counts[key] / draws - share) / error if error else 0.0)
    assert set(counts) <= {key for key, share in exact.items() if share}
    return max(errors)


def sampled(rule: Rule, *, draws: int, seed: int) -> tuple[Counter, float]:
    """First tokens of ``draws`` steps with one drawn guess, and the share of kept guesses."""
    rng = np.random.default_rng(seed)
    counts, kept = Counter(), 0
    for guess in rng.choice(len(DRAFT), size=draws, p=DRAFT):
        step = accept(
            [guess], draft_probs=DRAFT[None], target_probs=np.stack([TARGET] * 2), rng=rng,
            rule=rule,
        )  # fmt: skip
        counts[step.tokens[0]] += 1
        kept += step.accepted
        assert len(step.tokens) == step.accepted + 1 and step.all_kept == (step.accepted == 1)
    return counts, kept / draws


def test_sampled_first_tokens_within_three_sigma() -> None:
    counts, kept = sampled(LOSSLESS, draws=DRAWS, seed=1)
    assert chance_of(counts, dict(enumerate(TARGET)), draws=DRAWS) < 3
    alpha = acceptance_rate(DRAFT, target_probs=TARGET)
    assert abs(kept - alpha) < 3 * np.sqrt(alpha * (1 - alpha) / DRAWS)


@pytest.mark.parametrize("name", WRONG)
def test_sampled_first_tokens_catch_wrong_rules(name: str) -> None:
    counts, _ = sampled(WRONG[name], draws=DRAWS, seed=1)
    assert chance_of(counts, dict(enumerate(TARGET)), draws=DRAWS) > 5


# Two tokens: a target and a draft that both depend on the token before.
TARGET_CHAIN = np.array([[0.1, 0.6, 0.3], [0.5, 0.0, 0.5], [0.25, 0.25, 0.5]])
DRAFT_CHAIN = np.array([[0.4, 0.4, 0.2], [0.1, 0.6, 0.3], [0.7, 0.2, 0.1]])
PAIRS = list(itertools.product(range(3), repeat=2))
EXACT = {(a, b): TARGET_CHAIN[0, a] * TARGET_CHAIN[a, b] for a, b in PAIRS}  # begins after a 0


def pair_chances(rule: Rule, guesses: int) -> dict[tuple[int, int], float]:
    """Joint distribution of the first two written tokens, by enumeration of every course.

    A step guesses ``guesses`` tokens from the draft's chain; when it writes one token only, a
    second step follows it.
    """
    found = dict.fromkeys(PAIRS, 0.0)

    def second(before: int) -> np.ndarray:
        return emitted_distribution(
            DRAFT_CHAIN[before], target_probs=TARGET_CHAIN[before], rule=rule
        )

    draft, target = DRAFT_CHAIN[0], TARGET_CHAIN[0]
    keep, redraw = rule.keep(draft, target), rule.redraw(draft, target)
    for a, b in PAIRS:
        kept = draft[a] * keep[a]
        after_kept = second(a)[b] if guesses > 1 else TARGET_CHAIN[a, b]
        rejected = (1 - (draft * keep).sum()) * redraw[a]
        found[a, b] = kept * after_kept + rejected * second(a)[b]
    return found


@pytest.mark.parametrize("guesses", [1, 2])
def test_two_tokens_are_the_targets_chain(guesses: int) -> None:
    assert pair_chances(LOSSLESS, guesses) == pytest.approx(EXACT, abs=1e-12)
    for rule in WRONG.values():
        wrong = pair_chances(rule, guesses)
        assert sum(abs(wrong[pair] - EXACT[pair]) for pair in PAIRS) > 0.05


def written(rng: np.random.Generator, *, guesses: int, rule: Rule) -> tuple[int, int]:
    """The first two tokens that ``accept`` writes, in as many steps as it takes."""
    text = [0]
    while len(text) < 3:
        guess = [text[-1]]
        for _ in range(guesses):
            guess.append(int(rng.choice(3, p=DRAFT_CHAIN[guess[-1]])))
        step = accept(
            guess[1:], draft_probs=DRAFT_CHAIN[guess[:-1]], target_probs=TARGET_CHAIN[guess],
            rng=rng, rule=rule,
        )  # fmt: skip
        text += step.tokens
    return text[1], text[2]


@pytest.mark.parametrize("guesses", [1, 2, 4])
def test_sampled_pairs_within_three_sigma(guesses: int) -> None:
    rng = np.random.default_rng(guesses)
    counts = Counter(written(rng, guesses=guesses, rule=LOSSLESS) for _ in range(DRAWS))
    assert chance_of(counts, EXACT, draws=DRAWS) < 3


@pytest.mark.parametrize("name", WRONG)
def test_sampled_pairs_catch_wrong_rules(name: str) -> None:
    rng = np.random.default_rng(1)
    counts = Counter(written(rng, guesses=2, rule=WRONG[name]) for _ in range(DRAWS))
    with pytest.raises(AssertionError):  # too far away, or a pair that the target never writes
        assert chance_of(counts, EXACT, draws=DRAWS) < 3


@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), min_size=7, max_size=7))
def test_greedy_keeps_the_longest_right_beginning(guess: list[int], best: list[int]) -> None:
    best = best[: len(guess) + 1]
    step = accept_greedy(guess, target_tokens=best)
    same = [g == b for g, b in zip(guess, best, strict=False)]
    assert step.accepted == (same.index(False) if False in same else len(guess))
    assert step.tokens == tuple(best[: step.accepted + 1])


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2), max_size=5), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_greedy_is_sampling_from_certain_distributions(guess: list[int], best: list[int]) -> None:
    """At temperature 0 both distributions are one-hot, and no chance is left."""
    best = best[: len(guess) + 1]
    step = accept(
        guess, draft_probs=one_hot(guess, vocabulary=3), target_probs=one_hot(best, vocabulary=3),
        rng=np.random.default_rng(0),
    )  # fmt: skip
    assert step == accept_greedy(guess, target_tokens=best)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_probs": TARGET[None]}, r"needed: \(k, V\) and \(k \+ 1, V\)"),
        ({"draft_probs": np.array([[2.0, -1.0, 0.0, 0.0]])}, "must hold probabilities"),
        ({"draft_probs": np.array([[1.0, 3.0, 0.0, 0.0]])}, "logits need a softmax"),
        ({"draft_probs": np.array([[0.0, 1.0, 0.0, 0.0]])}, "guess 0 is token 0"),
        ({"draft_tokens": [7]}, "guess 0 is token 7"),
    ],
)
def test_wrong_arrays_are_named(change: dict, message: str) -> None:
    given_ = {
        "draft_tokens": [0], "draft_probs": DRAFT[None], "target_probs": np.stack([TARGET] * 2),
        "rng": np.random.default_rng(0), **change,
    }  # fmt: skip
    with pytest.raises(UsageError, match=message):
        accept(given_.pop("draft_tokens"), **given_)


def test_other_wrong_use_is_named() -> None:
    with pytest.raises(UsageError, match="2 guesses and 2 target tokens"):
        accept_greedy([1, 2], target_tokens=[1, 2])
    with pytest.raises(UsageError, match="vocabulary of 3"):
        one_hot([3], vocabulary=3)
