"""Prompts by how much of the reply is in the prompt already: copy, edit, prose, chat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import UsageError, did_you_mean

FILE = "data/prompts/speculation.jsonl"
CLASSES = ("copy", "edit", "prose", "chat")
_FIELDS = {"id", "kind", "prompt", "max_tokens"}


@dataclass(frozen=True)
class ClassPrompt:
    """One prompt in chat form. ``max_tokens``: bound of its reply."""

    id: str
    kind: str
    text: str
    max_tokens: int


def class_prompts(
    kinds: Sequence[str] = CLASSES, *, per_class: int | None = None, skip: int = 0
) -> tuple[ClassPrompt, ...]:
    """Prompts class by class, in the order of the file: ``skip`` left out, then ``per_class``.

    Two calls with ``skip=0, per_class=n`` and ``skip=n`` share no prompt, so that one half can be
    predicted from the other. Raises UsageError for an unknown class, one with too few prompts, or a
    line of the file that breaks the schema.
    """
    rows, out = list(_rows()), []
    for kind in kinds:
        if kind not in CLASSES:
            raise UsageError(f"class of prompts is {kind!r}.{did_you_mean(kind, list(CLASSES))}")
        mine = [row for row in rows if row.kind == kind]
        wanted = len(mine) - skip if per_class is None else per_class
        if skip < 0 or wanted < 1 or skip + wanted > len(mine):
            raise UsageError(
                f"{wanted} prompts of class {kind!r} after {skip} skipped ones; there are "
                f"{len(mine)} in {FILE}"
            )
        out += mine[skip : skip + wanted]
    return tuple(out)


def _rows() -> Iterator[ClassPrompt]:
    with (host.repository_root() / FILE).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row: dict[str, Any] = json.loads(line)
            except ValueError as error:
                raise UsageError(f"{FILE} line {number} is not JSON: {error}") from error
            if row.keys() != _FIELDS:
                raise UsageError(f"{FILE} line {number} has {sorted(row)}, not {sorted(_FIELDS)}")
            yield ClassPrompt(row["id"], row["kind"], row["prompt"], row["max_tokens"])
