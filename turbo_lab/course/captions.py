"""The caption of a figure, and its alt text for readers who do not see the picture.

A caption is Markdown after the picture: shown by the same cell, the next Markdown cell, or Markdown
that the next cell shows (``lab.text``, where it quotes measured numbers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

MARK = "refute"  # each caption says what would refute it; hygiene demands that
MAX_ALT_CHARACTERS = 300
_LABEL = re.compile(r"^\**(?:Figure(?: \d+)?)\.?\**\s*")
_REFUTE = re.compile(
    r"\s*\(?\*?(?:What|Which)?[^.*?!]{0,20}\brefute\b.*", re.DOTALL | re.IGNORECASE
)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CLAIM = re.compile(r"\s*\[claim:[^\]]*\]")


def find_caption(cells: Sequence[Any], index: int) -> str | None:
    """The paragraph that is the caption of the figure of cell ``index``; None where it has none."""
    for text in _candidates(cells, index):
        for paragraph in re.split(r"\n\s*\n", text):
            if MARK in paragraph.lower():
                return paragraph.strip()
    return None


def _candidates(cells: Sequence[Any], index: int) -> Iterator[str]:
    yield from _shown(cells[index])
    for cell in cells[index + 1 : index + 2]:
        if cell.cell_type == "markdown":
            yield cell.source
        yield from _shown(cell)


def _shown(cell: Any) -> Iterator[str]:
    """What a code cell shows as Markdown or prints."""
    for output in cell.get("outputs", []):
        text = output.get("data", {}).get("text/markdown") or output.get("text", "")
        yield text if isinstance(text, str) else "".join(text)


def alt_text(cells: Sequence[Any], index: int) -> str | None:
    """What the figure of cell ``index`` shows, as plain text of at most 300 characters.

    It is the caption without its label, without Markdown, and without the part that says what
    would refute the figure. None where the figure has no caption.
    """
    caption = find_caption(cells, index)
    if caption is None:
        return None
    shown = _REFUTE.sub("", _LABEL.sub("", caption)) or caption
    return _shortened(plain_text(shown))


def plain_text(markdown: str) -> str:
    """Inline Markdown as one line of plain text: links by their text, claims and marks left out."""
    text = _CLAIM.sub("", _LINK.sub(r"\1", markdown))
    return " ".join(re.sub(r"\*\*|`|(?<!\w)\*|\*(?!\w)|\$", "", text).split())


def _shortened(text: str) -> str:
    """Whole sentences up to the limit; a first sentence that is longer is cut at a word."""
    if len(text) <= MAX_ALT_CHARACTERS:
        return text
    kept = ""
    for sentence in re.split(r"(?<=[.!?])\s+", text):
        if len(kept) + len(sentence) + 1 > MAX_ALT_CHARACTERS:
            break
        kept = f"{kept} {sentence}".strip()
    return kept or text[: MAX_ALT_CHARACTERS - 4].rsplit(" ", 1)[0] + " ..."
