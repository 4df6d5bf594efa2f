"""The prompts: every reference answer passes, every wrong one fails, and both are true."""

from __future__ import annotations

import ast
import json
import operator
from collections import Counter
from pathlib import Path

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.experiment import quality_prompts
from turbo_lab.experiment.quality_checks import passes, why_not
from turbo_lab.experiment.quality_prompts import (
    KINDS,
    LANGUAGES,
    document,
    load_passages,
    load_prompts,
)

ALL = load_prompts()
_OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def value(node: ast.AST) -> float:
    """The value of a sum written with digits: no names, no calls."""
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](value(node.left), value(node.right))
    assert isinstance(node, ast.Constant)
    return node.value


def test_there_are_enough_of_each_kind_in_both_languages():
    assert len(ALL) >= 120 and len({p.id for p in ALL}) == len(ALL)
    assert len({p.text for p in ALL}) == len(ALL)
    count = Counter((p.kind, p.language) for p in ALL)
    assert all(count[kind, language] >= 3 for kind in KINDS for language in LANGUAGES)
    assert {p.depth for p in ALL if p.kind == "needle"} >= {0.0, 0.25, 0.5, 0.75, 1.0}


@pytest.mark.parametrize("prompt", ALL, ids=lambda p: p.id)
def test_reference_passes_and_wrong_answer_fails(prompt):
    assert why_not(prompt.rule, prompt.reference) is None
    assert why_not(prompt.rule, prompt.wrong)
    assert not passes(prompt, "") and not passes(prompt, "I cannot help with that.")


def test_the_answers_are_true():
    for p in ALL:
        if p.kind == "arithmetic":
            assert value(ast.parse(p.rule["expression"], mode="eval").body) == p.rule["value"]
        elif p.kind == "needle":
            assert p.text.count(p.rule["text"]) == 1, p.id
        elif p.kind == "json":
            told = p.text.replace('"', "")
            for word in json.dumps(p.rule["equals"], ensure_ascii=False).split('"')[1::2]:
                assert word in told, p.id
        elif p.kind == "summarising":
            assert all(any(w in p.text for w in group) for group in p.rule["required"]), p.id
            assert not any(w in p.text.split() for w in p.rule["forbidden"]), p.id
            assert "at most" in why_not(p.rule, p.text.split("\n")[1]), "a copy is no summary"


def test_copies_are_in_the_prompt_where_they_are_to_be_repeated():
    repeated = [p for p in ALL if p.kind == "copying" and p.text.endswith(('"', "”"))]
    assert len(repeated) >= 15 and all(p.rule["text"] in p.text for p in repeated)


def test_the_needle_lies_at_its_depth():
    for p in (p for p in ALL if p.kind == "needle"):
        place = p.text.index(p.rule["text"]) / len(p.text)
        assert abs(place - p.depth) < 0.3, p.id


def test_spread_keeps_both_ends_and_both_languages():
    few = load_prompts(per_kind=4)
    assert len(few) == 4 * len(KINDS)
    assert {p.language for p in few if p.kind == "needle"} == set(LANGUAGES)
    assert load_prompts(["facts"], language="zh")[0].id == "facts-zh-01"
    assert len(load_prompts(["facts"], per_kind=1)) == 1
    with pytest.raises(UsageError, match="at least 1"):
        load_prompts(per_kind=0)
    with pytest.raises(UsageError, match="arithmetic"):
        load_prompts(["arithmetics"])


def test_passages_are_text_of_both_languages():
    assert len(load_passages("en")) >= 12 and len(load_passages("zh")) >= 6
    assert 1500 <= len(document("en").split()) <= 3000 and len(document("zh")) >= 800
    assert document("en", passages=2).count("\n\n") == 1
    assert len({p.text for p in load_passages()}) == len(load_passages())


GOOD = {"id": "x", "kind": "facts", "language": "en", "prompt": "q", "reference": "a", "wrong": "b",
        "rule": {"type": "contains_any", "any": ["a"]}, "max_tokens": 4}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "fact"}, "facts"),
        ({"language": "de"}, "language 'de'"),
        ({"rule": {"type": "regex"}}, "rule"),
        ({"extra": 1}, "unknown"),
        ({"context": {"needle": "n", "depth": 0.5, "passages": 99}}, "99 passages"),
    ],
)
def test_a_broken_line_names_the_prompt_and_what_is_wrong(
    tmp_path: Path, monkeypatch, change, message
):
    folder = tmp_path / "prompts"
    folder.mkdir()
    source = quality_prompts.prompts_folder() / "passages.jsonl"
    (folder / "passages.jsonl").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "facts.jsonl").write_text(json.dumps({**GOOD, **change}))
    monkeypatch.setattr(quality_prompts, "prompts_folder", lambda: folder)
    with pytest.raises(UsageError, match=message):
        load_prompts(["facts"])
    (folder / "facts.jsonl").write_text("{")
    with pytest.raises(UsageError, match="line 1 is not JSON"):
        load_prompts(["facts"])
