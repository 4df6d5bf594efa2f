"""Counts over records: bands that hold, factors read as written, flags as the audit says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.papers import survey
from turbo_lab.papers.audit import audit
from turbo_lab.papers.schema import Claim, Conditions
from turbo_lab.papers.store import list_records, record
from turbo_lab.papers.survey import Headline

RECORDS = list_records()


@given(st.integers(1, 60), st.data())
def test_a_band_holds_the_draw_and_narrows_with_reading(of, data):
    read = data.draw(st.integers(1, of))
    hits = data.draw(st.integers(0, read))
    low, high = survey.whole_band(hits, read=read, of=of)
    assert hits <= low <= high <= of - (read - hits)
    wide = survey.whole_band(hits, read=read, of=of, confidence=0.99)
    assert wide[0] <= low and high <= wide[1]
    if read == of:
        assert (low, high) == (hits, hits)


@pytest.mark.parametrize("total", [0, 5, 20, 33, 58])
def test_a_band_covers_the_truth_as_often_as_it_says(total):
    """Draw 12 of 58 two thousand times: 95 % bands miss in at most 5 %, and do miss sometimes."""
    rng, whole = random.Random(total), [True] * total + [False] * (58 - total)
    missed = 0
    for _ in range(2000):
        hits = sum(rng.sample(whole, 12))
        low, high = survey.whole_band(hits, read=12, of=58)
        missed += not low <= total <= high
    assert missed <= 120
    if total in (20, 33):
        assert missed > 0


@pytest.mark.parametrize("wrong", [(5, 4, 10), (1, 0, 10), (1, 12, 10), (-1, 4, 10)])
def test_impossible_counts_are_refused(wrong):
    hits, read, of = wrong
    with pytest.raises(UsageError, match="hits"):
        survey.whole_band(hits, read=read, of=of)


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("2.2-3.6x", (3.6,)),
        ("36.9x", (36.9,)),
        ("1.5x-14.5x better", (1.5, 14.5)),
        ("up to 29x, 29x and 3x over", (29.0, 29.0, 3.0)),
        ("LLaMA2-70B (8xA40, TP4-PP2)", ()),
        ("up to 87% lower", ()),
        ("7.32 tok/s vs 0.62", ()),
        ("2x-3x class: 2.6x (temperature 1)", (2.0, 3.0, 2.6)),
        ("4x4 grid", ()),
        ("", ()),
    ],
)
def test_factors_are_read_as_they_are_written(text, factors):
    assert survey.factors(text) == factors


def test_headlines_are_the_largest_factor_of_a_record():
    found = {one.paper: one for one in survey.headlines(RECORDS)}
    assert found["orca"].factor == 36.9 and found["orca"].against == "mainstream"
    assert found["h2o"].factor == 29.0 and found["h2o"].against == "naive"
    assert "turbo-sigcomm-2026" not in found  # no number was found, so none is made up
    assert "flexgen" not in found  # pairs of values are not divided
    assert all(one.factor > 1 for one in found.values())
    assert all(one.missing == len(audit(record(paper)).missing) for paper, one in found.items())


def test_a_claim_without_a_number_or_below_one_makes_no_headline():
    clean = record("orca")
    for number in (None, "0.5x", "faster"):
        claim = Claim(**{**clean.claims[0].model_dump(), "number": number})
        assert survey.headlines([clean.model_copy(update={"claims": (claim,)})]) == ()


def headline(missing: int, factor: float, against: str = "naive") -> Headline:
    return Headline("p", "P", factor, "speed", against, missing)


def test_rank_correlation_is_one_for_a_rising_row_and_refuses_a_flat_one():
    rising = [headline(k, 2.0**k) for k in range(6)]
    falling = [headline(k, 2.0**-k) for k in range(6)]
    assert survey.rank_correlation(rising) == pytest.approx(1)
    assert survey.rank_correlation(falling) == pytest.approx(-1)
    for flat in (rising[:2], [headline(1, 2.0)] * 5, [headline(1, f) for f in (1.0, 2.0, 3.0)]):
        with pytest.raises(UnmeasuredError):
            survey.rank_correlation(flat)


def test_unrelated_pairs_rarely_pass_the_chance_correlation():
    rng, limit = random.Random(3), survey.chance_correlation(46)
    rows = [
        [headline(rng.randrange(7), rng.lognormvariate(1, 1)) for _ in range(46)]
        for _ in range(300)
    ]
    beyond = sum(abs(survey.rank_correlation(row)) > limit for row in rows)
    assert 1 <= beyond <= 40


def test_median_factor_of_a_kind_that_nobody_uses_is_unmeasured():
    assert survey.median_factor([headline(1, 3.0), headline(2, 5.0)], against="naive") == 4.0
    with pytest.raises(UnmeasuredError, match="itself"):
        survey.median_factor([headline(1, 3.0)], against="itself")


def test_engines_are_counted_by_name_and_the_kernel_language_is_not_a_server():
    counts = survey.engines_compared(RECORDS)
    assert counts["vLLM"] >= 12 and counts["Triton Inference Server"] == 0
    one = record("orca")
    told = {"baselines": "Triton 3.0 attention; TGI, vLLMish"}
    fake = one.model_copy(update={"setting": one.setting.model_copy(update=told)})
    found = survey.engines_compared([fake])
    assert found == {**dict.fromkeys(found, 0), "TGI": 1}


def test_counts_follow_the_records():
    blank = Conditions(**dict.fromkeys(survey.CONDITIONS, False))
    first = RECORDS[0].model_copy(update={"conditions": blank})
    full = RECORDS[1].model_copy(
        update={"conditions": Conditions(**dict.fromkeys(survey.CONDITIONS, True))}
    )
    assert set(survey.stated_counts([first, full]).values()) == {1}
    assert survey.missing_count(first) == 6 and survey.missing_count(full) == 0
    assert all(0 < n <= len(RECORDS) for n in survey.answered_counts(RECORDS).values())
    for question, row in survey.transfer_rows(RECORDS).items():
        assert row["records"] == survey.answered_counts(RECORDS)[question]
        assert sum(row.values()) == 2 * row["records"]
    assert survey.share_with_layer([first], first.layers[0]) == 1.0
    with pytest.raises(UnmeasuredError):
        survey.share_with_layer([], "runtime")


def test_the_matrix_has_a_column_per_record_with_the_fewest_gaps_first():
    matrix = survey.condition_matrix(RECORDS, least=5)
    assert len(matrix.papers) == len(RECORDS) and len(set(matrix.papers)) == len(RECORDS)
    assert list(matrix.missing) == sorted(matrix.missing)
    stated = survey.stated_counts(RECORDS)
    for name, count in stated.items():
        assert sum(matrix.flags[f"no {name}"]) == len(RECORDS) - count
    traps = list(matrix.flags)[matrix.conditions :]
    assert traps and all(sum(matrix.flags[trap]) >= 5 for trap in traps)
