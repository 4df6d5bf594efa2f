"""A run whose prompts are given texts: asked as they are, in order, once each."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.plan import BenchPlan
from turbo_lab.experiment.preflight import Dialect
from turbo_lab.experiment.requests import build_requests, require_context
from turbo_lab.workload.shape import Workload
from turbo_lab.workload.traces import TraceRow

from .conftest import made_run, quick_plan

TEXTS = tuple(f"question {i}" for i in range(30))
DIALECT = Dialect("continuous", True, 1.0, 0.0, "exact")


def plan(**more) -> BenchPlan:
    return quick_plan(workload=Workload(texts=TEXTS), **more)


def test_the_prompts_are_the_texts_whatever_the_salt():
    for salt in (0, 7):
        asked = build_requests(plan(prompt_salt=salt), dialect=DIALECT, tokenizer=None)
        assert [r.prompt for r in asked] == list(TEXTS)


def test_other_texts_are_another_load_and_none_are_the_old_one():
    other = quick_plan(workload=Workload(texts=TEXTS[::-1]))
    assert plan().shape_digest() != other.shape_digest() != quick_plan().shape_digest()
    assert "texts" not in quick_plan().variables()
    assert plan().variables()["input_tokens"] is None


def test_a_plan_survives_json():
    assert BenchPlan.from_dict(plan().to_dict()) == plan()


def test_more_requests_than_texts_would_ask_one_twice():
    with pytest.raises(UsageError, match="there are 30 texts, not 31"):
        plan(requests=31)


def test_texts_have_no_trace_and_no_other_kind():
    with pytest.raises(UsageError, match="texts are whole prompts"):
        Workload(texts=("a",), kind="multi-turn", turns=2)
    with pytest.raises(UsageError, match="texts are whole prompts"):
        Workload(texts=("a",), trace=(TraceRow(0.0, 1, 1),))


def test_no_length_was_asked_for_so_none_is_judged(tmp_path):
    gates = {
        g.name: g for g in made_run(tmp_path / "a", workload=Workload(texts=TEXTS)).record.gates
    }
    assert gates["input length"].passed is None and "given texts" in gates["input length"].detail
    assert gates["output length"].passed is True
    require_context(plan(), context_tokens=1)  # only the server can count given texts
