"""n-gram speculation as a function of the text: the proposer's rule, and the steps of a reply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.speculative.lookup import guess_steps, propose

TEXT = st.lists(st.integers(0, 4), max_size=40)
K = st.integers(1, 12)


def test_what_followed_the_longest_ending_at_its_first_place() -> None:
    text = [1, 2, 3, 4, 9, 8, 2, 3, 4, 7, 7, 2, 3, 4]
    assert propose(text, draft_tokens=3) == [9, 8, 2], "the first place of [2, 3, 4]"
    assert propose([5, 6, 1, 0, 6, 1], draft_tokens=9) == [0, 6, 1], "as much as there is"
    assert propose([1, 2, 3, 4], draft_tokens=3) == [], "nothing repeats"
    assert propose([1, 2, 1], draft_tokens=3) == [], "one token is too short an ending"
    assert propose([7, 7, 7, 7, 7, 7, 7], draft_tokens=2) == [7, 7], "places may overlap"


@given(TEXT, K)
def test_a_guess_stands_in_the_text(text: list[int], k: int) -> None:
    guess = propose(text, draft_tokens=k)
    assert len(guess) <= k
    if guess:
        places = [
            i for i in range(2, len(text))
            if text[i - 2 : i] == text[-2:] and text[i : i + len(guess)] == guess
        ]  # fmt: skip
        assert places and places[0] < len(text)
    else:
        assert all(text[i : i + 2] != text[-2:] for i in range(len(text) - 2))


@given(TEXT, TEXT, K)
def test_steps_give_the_whole_reply_and_never_more(
    prompt: list[int], reply: list[int], k: int
) -> None:
    steps = guess_steps(prompt, reply, draft_tokens=k)
    assert sum(step.gave for step in steps) == max(0, len(reply) - 1)
    for step in steps[:-1]:
        assert step.gave == step.accepted + 1
    assert all(0 <= s.accepted <= s.proposed <= k and s.gave >= 1 for s in steps)


def test_a_copy_takes_few_steps_and_new_text_one_each() -> None:
    source = list(range(100, 140))
    copied = guess_steps(source, source, draft_tokens=10)
    assert len(copied) == 1 + 4, "one step finds the place, then eleven tokens a step"
    fresh = guess_steps(source, list(range(200, 240)), draft_tokens=10)
    assert len(fresh) == 39
    assert all(step.proposed == 0 for step in fresh)


@pytest.mark.parametrize("bad", [(0, 2, 3), (3, 0, 3), (3, 3, 2)])
def test_impossible_lengths(bad: tuple[int, int, int]) -> None:
    k, shortest, longest = bad
    with pytest.raises(UsageError, match="1 <= shortest <= longest"):
        propose([1, 2, 3], draft_tokens=k, shortest=shortest, longest=longest)
