"""Paired differences and the table: intervals that hold what they promise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.engines.mock_script import Reply as MockReply
from turbo_lab.engines.mock_script import Script, Speech, event, payload
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment.quality_logits import TokenScores, first_difference
from turbo_lab.experiment.quality_paired import paired_difference
from turbo_lab.experiment.quality_prompts import load_prompts
from turbo_lab.experiment.quality_served import served_replies
from turbo_lab.experiment.quality_subject import Reply
from turbo_lab.experiment.quality_table import (
    QualityRow,
    needle_difference,
    reply_quality,
    text_quality,
)

FACTS = load_prompts(["facts"])[:6]
finite = st.floats(-1e3, 1e3, allow_nan=False)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(finite, finite, st.floats(0.1, 9)), min_size=5, max_size=30))
def test_the_mean_is_the_weighted_mean_and_lies_in_its_interval(units):
    a, b, w = zip(*units, strict=True)
    found = paired_difference(a, b, weights=w, resamples=300)
    wanted = sum(w * (b - a) for a, b, w in units) / sum(w)
    assert found.mean == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    slack = 1e-9 + 1e-9 * abs(wanted)
    assert min(y - x for x, y, _ in units) - slack <= found.low <= found.high
    same = paired_difference(a, a, weights=w, resamples=300)
    assert same.interval == (0.0, 0.0) and not same.shown


def test_pairing_sees_what_two_unpaired_samples_would_hide():
    rng = random.Random(0)
    reference = [rng.uniform(1, 9) for _ in range(40)]
    candidate = [x + 0.1 + rng.gauss(0, 0.05) for x in reference]
    assert paired_difference(reference, candidate).shown
    rng.shuffle(candidate)
    assert not paired_difference(reference, candidate).shown


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    rng = random.Random(1)
    hits = 0
    for trial in range(200):
        b = [rng.gauss(0.5, 1) for _ in range(40)]
        found = paired_difference([0.0] * 40, b, resamples=400, seed=trial)
        hits += found.low <= 0.5 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def test_too_little_and_unequal_sides_are_refused():
    with pytest.raises(UnmeasuredError, match="4 units"):
        paired_difference([1.0] * 4, [1.0] * 4)
    with pytest.raises(UsageError, match="5 reference values and 6"):
        paired_difference([1.0] * 5, [1.0] * 6)
    with pytest.raises(UsageError, match="positive"):
        paired_difference([1.0] * 5, [1.0] * 5, weights=[0.0] * 5)


def test_the_position_of_the_first_difference():
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 9, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2
    assert first_difference([], [1]) == 0


def scores(nll: float, kl: float, same: bool, count: int = 64) -> TokenScores:
    return TokenScores((nll,) * count, (kl,) * count, (same,) * count)


def test_text_quality_of_a_uniformly_worse_candidate():
    found = text_quality(scores(2.0, 0.0, True), scores(2.1, 0.3, False), block_tokens=10)
    assert found.nll.mean == pytest.approx(0.1) and found.tokens == 64
    assert found.perplexity_ratio[0] == pytest.approx(1.10517, rel=1e-4)
    assert found.kl.candidate == pytest.approx(0.3) and found.other_top.candidate == 1.0
    assert found.nll.units == 7 and found.nll.shown
    with pytest.raises(UsageError, match="one text"):
        text_quality(scores(2.0, 0.0, True), scores(2.0, 0.0, True, count=63))


def answers(change: dict[int, str]) -> list[Reply]:
    out = []
    for i, p in enumerate(FACTS):
        text = change.get(i, p.reference)
        out.append(Reply(p.id, tuple(ord(c) for c in text), text))
    return out


def test_reply_quality_counts_passes_equal_replies_and_where_others_part():
    reference = answers({})
    wrong = {0: FACTS[0].wrong, 1: FACTS[1].reference + "."}
    found = reply_quality(FACTS, reference, answers(wrong))
    assert found.equal_share == pytest.approx(4 / 6)
    assert found.passed.reference == 1.0 and found.passed.candidate == pytest.approx(5 / 6)
    assert found.divergence == pytest.approx((0 + len(FACTS[1].reference)) / 2)
    same = reply_quality(FACTS, reference, answers({}))
    assert same.equal_share == 1.0 and same.divergence is None
    with pytest.raises(UsageError, match="not those"):
        reply_quality(FACTS, reference, reference[::-1])
    assert needle_difference(FACTS, reference, reference) is None


def test_a_row_shows_its_intervals_and_the_bytes():
    row = QualityRow(
        "int4", text=text_quality(scores(2.0, 0.0, True), scores(2.1, 0.3, True), block_tokens=8),
        replies=reply_quality(FACTS, answers({}), answers({0: FACTS[0].wrong})),
        stored_bytes=250, reference_bytes=1000,
    )  # fmt: skip
    cells = row.cells()
    assert cells["smaller"] == "4.00x" and cells["ratio"].startswith("1.105 [")
    assert cells["passed, difference"].startswith("-0.17 [") and row.smaller == 4.0
    assert QualityRow("x").cells() == {"cache": "x"}


def saying(text: str) -> Script:
    steps = (event(payload(text, finish="stop")), event("[DONE]"))
    return Script(replies=(MockReply(steps=steps),))


def test_a_served_model_is_judged_by_its_text_alone():
    with MockServer(saying("It is Paris.")) as server:
        replies, runs = served_replies(server.base_url, FACTS, model="m")
    found = reply_quality(FACTS, answers({}), replies)
    assert found.divergence_unit == "characters" and len(runs) == len(FACTS)
    assert found.passed.candidate == pytest.approx(1 / 6) and found.equal_share == 0.0
    dead = Script(replies=(MockReply(status=500, speech=Speech()),))
    with (
        MockServer(dead) as server,
        pytest.raises(UnmeasuredError, match="6 of 6 requests failed, first facts-en-01"),
    ):
        served_replies(server.base_url, FACTS, model="m")
