"""The caption of a figure becomes its alt text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from turbo_lab.course.captions import MAX_ALT_CHARACTERS, alt_text, find_caption

PICTURE = new_output("display_data", data={"image/png": "aGk="})


def shown(markdown: str):
    return new_output("execute_result", data={"text/markdown": markdown, "text/plain": "other"})


def cells(caption: str):
    return [new_code_cell("plot()", outputs=[PICTURE]), new_markdown_cell(caption)]


def test_label_markdown_claims_and_refutation_are_left_out():
    text = (
        "**Figure 2.** Bytes over `S`, by [one model](https://x.org) [claim:a-b]. Lower is "
        "*better*. *What would refute it*: a line that bends.\n\nNext paragraph."
    )
    assert alt_text(cells(text), 0) == "Bytes over S, by one model. Lower is better."


def test_a_caption_may_be_rendered_by_the_same_or_the_next_cell():
    caption = "**Figure.** Five seats. *What would refute it*: a sixth."
    same = [new_code_cell("plot()", outputs=[PICTURE, shown(caption)]), new_code_cell("x = 1")]
    later = [
        new_code_cell("plot()", outputs=[PICTURE]),
        new_code_cell('lab.text("{n} seats, refute")', outputs=[shown(caption)]),
    ]
    assert alt_text(same, 0) == alt_text(later, 0) == "Five seats."


def test_the_source_of_a_cell_is_no_caption_and_neither_is_a_later_one():
    far = [new_code_cell("plot()  # refute", outputs=[PICTURE]), new_markdown_cell("A line.")]
    assert find_caption([*far, new_markdown_cell("What would refute it: all.")], 0) is None
    assert alt_text(far, 0) is None


@given(st.lists(st.text("abc. *`", min_size=1, max_size=120), min_size=1, max_size=12))
def test_an_alt_text_is_one_short_line(words: list[str]):
    text = alt_text(cells("**Figure.** A" + " ".join(words) + ". What would refute it: b."), 0)
    assert text and len(text) <= MAX_ALT_CHARACTERS and "\n" not in text
