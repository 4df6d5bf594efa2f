"""Which pairs may speculate together, by the sizes in their config.json."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.host import repository_root
from turbo_lab.models.catalog import find_model
from turbo_lab.models.vocabulary import vocabularies_match

SHARED = repository_root().parent / "shared" / "reference" / "models.json"


def match(target: str, draft: str):
    return vocabularies_match(find_model(target), draft=find_model(draft))


def test_the_sources_pair_differs_by_padding() -> None:
    found = match("qwen2.5-7b", "qwen2.5-1.5b")
    assert not found and (found.target_tokens, found.draft_tokens) == (152_064, 151_936)
    assert "152,064" in found.reason and "151,936" in found.reason
    assert "refuses" in found.reason and "128 rows" in found.reason and "padding" in found.reason


def test_the_course_pair_on_a_gpu_matches() -> None:
    found = match("qwen3-8b", "qwen3-0.6b")
    assert found and found.target_tokens == found.draft_tokens == 151_936
    assert "sizes alone" in found.reason


def test_other_tokenizers_are_told_from_padding() -> None:
    found = match("qwen2.5-7b", "smollm2-135m")
    assert not found and "different tokens" in found.reason and "padding" not in found.reason


def test_order_of_the_pair_plays_no_part() -> None:
    assert not match("qwen2.5-1.5b", "qwen2.5-7b")


@pytest.mark.parametrize(
    ("name", "ours"), [("Qwen2.5-7B-Instruct", "qwen2.5-7b"), ("Qwen2.5-1.5B", "qwen2.5-1.5b")]
)
def test_the_sizes_are_those_of_the_reference(name: str, ours: str) -> None:
    if not SHARED.exists():
        pytest.skip("the reference folder is not beside this checkout")
    raw = json.loads(SHARED.read_text())
    rows = raw["models"] if isinstance(raw, dict) else raw
    (row,) = [r for r in rows if r["name"] == name]
    assert find_model(ours).vocab == row["vocab"]
