"""Forecasts: n-gram from the off-control's replies, a draft from other prompts of its class."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.estimate.proposals import mixed_speedup, tokens_per_step
from turbo_lab.estimate.verification import VerifyCost
from turbo_lab.speculative.arms import OFF, Arm, arm_args, arms_of
from turbo_lab.speculative.forecast import (
    ForecastRow,
    LookupForecast,
    median_error,
)

TEXT = st.lists(st.integers(0, 3), min_size=4, max_size=40)
COST = VerifyCost.from_ratios({1: 1.2, 10: 2.5})


@given(TEXT, TEXT, st.integers(1, 10))
def test_the_sum_over_steps_is_the_law_of_mixed_proposals(
    prompt: list[int], reply: list[int], k: int
) -> None:
    found = LookupForecast.of([prompt, reply], [reply, prompt], draft_tokens=k)
    told = found.speedup(verify_cost=COST)
    assert told > 0
    share = found.drafts / len(found.steps)
    assert found.proposals.share == pytest.approx(share)
    if all(step.gave == step.accepted + 1 for step in found.steps):  # no reply was cut short
        law = mixed_speedup(found.proposals, acceptance=found.acceptance, verify_cost=COST)
        assert told == pytest.approx(law)
        mean = tokens_per_step(found.proposals, acceptance=found.acceptance)
        assert found.tokens_per_step == pytest.approx(mean)


def test_copying_gains_and_new_text_loses_nothing_where_nothing_is_guessed() -> None:
    source = list(range(50, 90))
    copied = LookupForecast.of([source], [source], draft_tokens=10)
    assert copied.speedup(verify_cost=COST) > 2.5
    fresh = LookupForecast.of([source], [list(range(100, 140))], draft_tokens=10)
    assert fresh.speedup(verify_cost=COST) == 1.0
    assert fresh.acceptance == (0.0,) * 10
    assert fresh.speedup(verify_cost=COST, empty_step_cost=1.25) == pytest.approx(0.8)


def test_rows_and_their_median_error() -> None:
    rows = [ForecastRow("copy", Arm("ngram", 10), 2.0, m) for m in (2.2, 1.9, 3.0)]
    assert median_error(rows) == pytest.approx(0.1)
    assert rows[0].to_dict()[""] == "faster"
    with pytest.raises(UnmeasuredError):
        median_error([])


def test_arms_change_the_speculation_and_nothing_else() -> None:
    base = VllmArgs(model="org/model")
    assert arm_args(OFF, base=base) == base
    ngram = arm_args(Arm("ngram", 5), base=base)
    assert '"num_speculative_tokens": 5' in ngram.speculative_config
    assert ngram.replace(speculative_config=None) == base
    draft = arm_args(Arm("draft", 3), base=base, draft="folder")
    assert '"model": "folder"' in draft.speculative_config
    assert [str(a) for a in arms_of(["off", "ngram"], lengths=[1, 2])] == [
        "off", "ngram 1", "ngram 2",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="needs a draft model"):
        arm_args(Arm("draft", 3), base=base)


@pytest.mark.parametrize(("method", "k"), [("off", 1), ("ngram", 0), ("eagle", 2)])
def test_impossible_arms(method: str, k: int) -> None:
    with pytest.raises(UsageError):
        Arm(method, k)
