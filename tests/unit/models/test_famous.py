from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GiB
from turbo_lab.models.catalog import all_models, load_model
from turbo_lab.models.famous import FAMOUS, WrongFormula, conversation_bytes, error_factors
from turbo_lab.models.memory import kv_cache_bytes, state_bytes_per_request

by_name = pytest.mark.parametrize("formula", FAMOUS, ids=lambda formula: formula.name)
COLUMNS = (
    "llama-2-7b", "falcon-7b", "llama-3.1-8b", "llama-3.1-70b", "qwen3-0.6b", "gpt-oss-20b",
    "gemma-3-27b-text", "qwen3.5-27b", "deepseek-v3",
)  # fmt: skip


def factor(formula: WrongFormula, model: str, tokens: int = 32_768) -> float | None:
    return error_factors([load_model(model).spec()], context_tokens=tokens)[formula.name][model]


@by_name
def test_each_formula_fails_on_its_model_and_may_escape_on_another(formula):
    assert abs(factor(formula, formula.fails_on) - 1) > 0.05
    if formula.escapes_on is not None:
        assert factor(formula, formula.escapes_on) == pytest.approx(1)


def test_the_factors_are_those_that_the_numbers_say():
    found = {f.name: {m: factor(f, m) for m in COLUMNS} for f in FAMOUS}
    assert found["attention heads for KV heads"]["llama-3.1-8b"] == 32 / 8
    assert found["attention heads for KV heads"]["falcon-7b"] == 71
    assert found["hidden / heads for head_dim"]["qwen3-0.6b"] == 64 / 128
    assert found["hidden / heads for head_dim"]["gpt-oss-20b"] == pytest.approx(45 / 64)
    assert found["group size for number of groups"]["llama-3.1-8b"] == 4 / 8
    assert found["group size for number of groups"]["llama-3.1-70b"] == 1  # 64 / 8 is 8 again
    assert found["cache in the weights' dtype"]["deepseek-v3"] == 0.5
    assert found["cache in the weights' dtype"]["gpt-oss-20b"] == 0.25
    assert found["factor 2 missing"]["llama-2-7b"] == 0.5
    assert found["GB for GiB"]["deepseek-v3"] == pytest.approx(2**30 / 1e9)
    # 128 heads of 192 + 128 values against one vector of 512 + 64
    assert found["MLA priced as MHA"]["deepseek-v3"] == pytest.approx(128 * 320 / 576)


def test_one_formula_for_all_layers_is_wrong_only_beyond_the_window():
    formula = next(f for f in FAMOUS if f.name == "one formula for all layers")
    assert factor(formula, "gpt-oss-20b", 100) == 1
    assert factor(formula, "gpt-oss-20b", 2**20) == pytest.approx(2, rel=1e-3)
    assert factor(formula, "qwen3.5-27b", 2**24) == pytest.approx(64 / 16, rel=1e-2)


def test_parts_that_a_model_does_not_have_are_none():
    assert factor(FAMOUS[0], "deepseek-v3") is None
    assert next(factor(f, "llama-3.1-8b") for f in FAMOUS if f.name == "MLA priced as MHA") is None


def test_no_single_model_shows_every_mistake():
    table = error_factors([load_model(m).spec() for m in COLUMNS], context_tokens=32_768)
    for model in COLUMNS:
        values = [table[f.name][model] for f in FAMOUS]
        assert any(v is not None and abs(v - 1) < 1e-9 for v in values), model


@given(st.integers(min_value=0, max_value=2**20), st.sampled_from(COLUMNS))
def test_a_conversation_is_the_kept_tokens_plus_the_fixed_state(tokens, model):
    spec = load_model(model).spec()
    assert conversation_bytes(spec, context_tokens=tokens) == (
        kv_cache_bytes(spec, batch=1, context_tokens=tokens) + state_bytes_per_request(spec)
    )


def test_every_model_of_the_catalogue_gives_finite_factors():
    table = error_factors([e.spec() for e in all_models()], context_tokens=4096)
    values = [v for row in table.values() for v in row.values() if v is not None]
    assert len(values) > 300 and all(0 < v < 1000 for v in values)


def test_a_claim_is_in_gib():
    gb = next(f for f in FAMOUS if f.name == "GB for GiB")
    spec = load_model("llama-3.1-8b").spec()
    assert gb.gib(spec, 8192) == pytest.approx(GiB / 1e9)  # 8,192 tokens of 128 KiB: 1 GiB
    with pytest.raises(UsageError, match="context_tokens is 0"):
        error_factors([spec], context_tokens=0)
