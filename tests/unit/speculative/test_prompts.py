"""The prompts by class: halves do not overlap, and a broken file is named."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.speculative import prompts
from turbo_lab.speculative.prompts import CLASSES, class_prompts


def test_every_class_has_two_halves_without_a_common_prompt() -> None:
    one, other = class_prompts(per_class=3), class_prompts(per_class=3, skip=3)
    assert [p.kind for p in one] == [k for k in CLASSES for _ in range(3)]
    assert not {p.text for p in one} & {p.text for p in other}
    assert len({p.id for p in (*one, *other)}) == 6 * len(CLASSES)


def test_copy_and_edit_hold_what_is_asked_for_and_prose_does_not() -> None:
    words = {kind: min(len(p.text.split()) for p in class_prompts([kind])) for kind in CLASSES}
    assert words["copy"] > 50
    assert words["edit"] > 30
    assert words["prose"] < 20
    assert words["chat"] < 20


def test_errors_name_the_class_and_the_number() -> None:
    with pytest.raises(UsageError, match="'poem'"):
        class_prompts(["poem"])
    with pytest.raises(UsageError, match="there are 6"):
        class_prompts(["copy"], per_class=4, skip=3)


def test_a_broken_line_is_named(tmp_path, monkeypatch) -> None:
    path = tmp_path / "data/prompts/speculation.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"id": "a", "kind": "copy"}\n')
    monkeypatch.setattr(prompts.host, "repository_root", lambda: tmp_path)
    with pytest.raises(UsageError, match="line 1 has"):
        class_prompts()
    path.write_text("{\n")
    with pytest.raises(UsageError, match="line 1 is not JSON"):
        class_prompts()
