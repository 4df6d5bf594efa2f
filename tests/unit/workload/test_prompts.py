from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.prompts import (
    exact_text,
    shared_prefix_prompts,
    token_count,
    token_id_prompts,
)


class Pieces:
    """A tokenizer in the manner of BPE: a space sticks to its word, words split every n letters."""

    def __init__(self, width: int) -> None:
        self.width = width

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]:
        out = [0] if add_special_tokens else []
        for piece in re.findall(r" ?\w+|[^\w\s]|\s", text):
            out += [1] * -(-len(piece) // self.width)
        return out

    def decode(self, ids, /) -> str:
        return "x" * len(ids)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 400), st.integers(2, 9), st.integers(0, 1000))
def test_exact_length(tokens, width, seed):
    tokenizer = Pieces(width)
    text = exact_text(tokenizer, tokens=tokens, seed=seed)
    assert token_count(tokenizer, text) == tokens


def test_exact_length_is_cheap_for_long_prompts():
    calls = []

    class Counting(Pieces):
        def encode(self, text, /, *, add_special_tokens=True):
            calls.append(len(text))
            return super().encode(text, add_special_tokens=add_special_tokens)

    exact_text(Counting(4), tokens=8000, seed=1)
    assert len(calls) < 60


def test_seeds_give_repeatable_and_different_texts():
    a = exact_text(Pieces(3), tokens=50, seed=1)
    assert a == exact_text(Pieces(3), tokens=50, seed=1)
    assert a.split()[:2] != exact_text(Pieces(3), tokens=50, seed=2).split()[:2]


def test_a_tokenizer_that_cannot_is_told():
    class Pairs(Pieces):
        def encode(self, text, /, *, add_special_tokens=True):
            return [1, 2] * len(text.split())

    with pytest.raises(UsageError, match="token_id_prompts"):
        exact_text(Pairs(1), tokens=7, seed=0)


def test_token_id_prompts():
    prompts = token_id_prompts(20, tokens=9, vocab_size=100, seed=1, avoid=[0, 1])
    assert [len(p) for p in prompts] == [9] * 20
    assert len({p[0] for p in prompts}) == 20
    assert not {0, 1} & {i for p in prompts for i in p}
    assert prompts == token_id_prompts(20, tokens=9, vocab_size=100, seed=1, avoid=[0, 1])


def test_shared_prefixes():
    prompts = shared_prefix_prompts(
        3, per_group=4, prefix_tokens=8, suffix_tokens=5, vocab_size=1000, seed=1
    )
    assert len(prompts) == 12 and {len(p) for p in prompts} == {13}
    prefixes = [tuple(p[:8]) for p in prompts]
    assert len(set(prefixes)) == 3
    assert all(a != b for a, b in itertools.pairwise(prefixes))
    assert len({tuple(p[8:]) for p in prompts}) == 12


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(2, 9), st.integers(0, 1000))
def test_a_shared_beginning_keeps_the_length_exact(prefix, rest, width, seed):
    tokenizer = Pieces(width)
    start = exact_text(tokenizer, tokens=prefix, seed=seed)
    texts = [
        exact_text(tokenizer, tokens=prefix + rest, seed=seed + i, start=start) for i in (1, 2)
    ]
    for text in texts:
        assert text.startswith(start) and token_count(tokenizer, text) == prefix + rest
    if rest > 10:
        assert texts[0] != texts[1]
    with pytest.raises(UsageError, match="already"):
        exact_text(tokenizer, tokens=prefix, seed=seed, start=start)
