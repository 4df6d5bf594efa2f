"""What notebook 12 computes from its record, without an engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.estimate.handover import HandoverCost
from turbo_lab.estimate.prefill import PrefillLaw
from turbo_lab.models.catalog import load_model
from turbo_lab.parallel import disagg_lesson as lesson
from turbo_lab.parallel.disagg_study import Disturbed

SPEC = load_model("smollm2-135m").spec()
LAW = PrefillLaw(SPEC, 0.015, 5e-12, 6e-12)
COST = HandoverCost(LAW, 46_080, 128)
FACTS = {"law": LAW, "block_tokens": 128, "longest_tokens": 2048, "room_tokens": 512}


@given(st.floats(0.01, 20))
def test_the_prompt_is_the_longest_that_its_time_and_the_sequence_allow(seconds: float) -> None:
    blocks = lesson.blocks_for(seconds, **FACTS)
    assert lesson.LEAST_BLOCKS <= blocks <= 12
    if blocks > lesson.LEAST_BLOCKS:
        assert LAW.seconds(tokens=128 * blocks + 1) <= seconds
    if blocks < 12:
        assert LAW.seconds(tokens=128 * (blocks + 1) + 1) > seconds


def test_the_fixed_time_is_what_the_rest_does_not_explain() -> None:
    rest = COST.rest_s(129)
    rows = [{"arm": "transfer", "ttft_s": rest + extra, "prompt_tokens": 129}
            for extra in (0.02, 0.03, 0.9)]  # fmt: skip
    rows.append({"arm": "recompute", "ttft_s": 9.0, "prompt_tokens": 129})
    assert lesson.fixed_s(rows, COST) == pytest.approx(0.03)
    early = [{"arm": "transfer", "ttft_s": rest / 2, "prompt_tokens": 129}]
    assert lesson.fixed_s(early, COST) == 0.0
    with pytest.raises(UnmeasuredError):
        lesson.middle([])


def test_prompts_are_the_same_again_and_share_nothing() -> None:
    facts = {"tokens": 129, "vocab_size": 49_152, "seed": 12}
    one, two = lesson.prompts(2, **facts), lesson.prompts(2, **facts)
    assert one == two and {len(ids) for ids in one} == {129}
    assert one[0][:2] != one[1][:2] != lesson.prompts(1, **{**facts, "tokens": 130})[0][:2]


def disturbed(arm: str, worst_s: float) -> Disturbed:
    return Disturbed(arm, (0.0, 0.1, 0.2), (0.1, worst_s, 0.1), (False, True, False), 1.0)


def test_runs_are_sorted_by_arm() -> None:
    rows = [disturbed(arm, s).to_dict() for arm, s in (("together", 2.0), ("separated", 0.3),
                                                       ("together", 2.2))]  # fmt: skip
    runs = lesson.by_arm(rows)
    assert [run.worst_s for run in runs["together"]] == [2.0, 2.2]


def test_published_rows_and_links() -> None:
    told = lesson.published()
    assert told["links"]["DistServe: 25 Gbit/s"] == 25e9 / 8
    assert len(told["rows"]) == 7 and all(row["figures"] for row in told["rows"])
