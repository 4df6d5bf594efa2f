from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.retrieval import K1, B, corpus_of, terms

WORDS = st.sampled_from(["tide", "clock", "coin", "snow", "train", "market"])
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), min_size=1, max_size=6)


def test_the_score_is_the_formula_by_hand():
    found = corpus_of(["snow snow train", "market"]).scores("snow")
    idf = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    length = K1 * (1 - B + B * 3 / 2)
    assert found == pytest.approx([idf * 2 * (K1 + 1) / (2 + length), 0.0])


def test_endings_do_not_hide_a_word():
    assert terms("Clocks showed TIMES, showing") == ["clock", "show", "tim", "show"]
    assert terms("is as bus") == ["is", "as", "bus"], "short words keep their letters"


@given(texts=TEXTS, query=WORDS)
def test_texts_without_a_word_of_the_query_score_nothing_and_come_last(texts, query):
    corpus = corpus_of(texts)
    scores = corpus.scores(query)
    assert all(
        (score > 0) == (query in text.split()) for score, text in zip(scores, texts, strict=True)
    )
    order = corpus.search(query, count=len(texts))
    assert sorted(order) == list(range(len(texts)))
    assert [scores[i] for i in order] == sorted(scores, reverse=True)


@given(texts=TEXTS)
def test_the_order_of_the_query_does_not_matter(texts):
    corpus = corpus_of(texts)
    assert corpus.scores("snow train coin") == corpus.scores("coin snow train")


def test_nothing_to_search_or_to_find_is_refused():
    with pytest.raises(UsageError, match="at least one word"):
        corpus_of(["..."])
    with pytest.raises(UsageError, match="count is 0"):
        corpus_of(["snow"]).search("snow", count=0)
