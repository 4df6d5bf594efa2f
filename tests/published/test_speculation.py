"""Published figures of speculative decoding, each from the inputs its source gives."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.host import repository_root
from turbo_lab.course.claims import claim
from turbo_lab.estimate.speculation import (
    equivalent_acceptance,
    expected_tokens,
    operations_ratio,
    optimal_draft_tokens,
    speedup,
)
from turbo_lab.estimate.verification import VerifyCost

FACTS = json.loads((repository_root() / "data" / "reference" / "speculation.json").read_text())
SHARED = repository_root().parent / "shared" / "reference" / "spec_decode.json"
CASE_0 = FACTS["llama_cpp"]["case_0"]


def name(row: dict) -> str:
    return "-".join(str(row[key]) for key in ("task", "temperature", "draft"))


@pytest.mark.parametrize("row", FACTS["table1"], ids=lambda r: f"{r['alpha']}-{r['draft_tokens']}")
def test_table_1(row: dict) -> None:
    size = {"draft_tokens": row["draft_tokens"]}
    found = speedup(row["alpha"], draft_cost=row["draft_cost"], **size)
    operations = operations_ratio(row["alpha"], draft_operations=0, **size)
    assert (round(found, 3), round(operations, 3)) == (row["speedup"], row["operations"])
    assert (round(found, 2), round(operations, 2)) == (
        row["published_speedup"],
        row["published_operations"],
    )


@pytest.mark.parametrize("row", FACTS["table2"], ids=name)
def test_inputs_of_table_2(row: dict) -> None:
    found = speedup(row["alpha"], draft_tokens=row["draft_tokens"], draft_cost=row["draft_cost"])
    assert round(found, 2) == row["theory"]
    assert round(row["measured"] / found, 3) == row["measured_over_theory"]


def test_the_formula_misses_most_where_the_draft_is_large() -> None:
    """Table 2 as a warning: translation with the large draft, where theory is a third too high."""
    worst = sorted(FACTS["table2"], key=lambda r: r["measured"] / r["theory"])[:2]
    assert {(r["task"], r["draft"]) for r in worst} == {("EnDe", "large")}


@pytest.mark.parametrize("row", FACTS["table2"], ids=name)
def test_the_papers_lengths_are_near_the_best_of_the_formula(row: dict) -> None:
    best = optimal_draft_tokens(row["alpha"], draft_cost=row["draft_cost"])
    here, there = (
        speedup(row["alpha"], draft_tokens=k, draft_cost=row["draft_cost"])
        for k in (row["draft_tokens"], best)
    )
    assert here <= there < 1.05 * here


def test_the_corrected_equation_of_llama_cpp() -> None:
    row = FACTS["llama_cpp"]["corrected"]
    found = speedup(row["alpha"], draft_tokens=row["draft_tokens"], draft_cost=row["draft_cost"])
    assert round(found, 3) == row["speedup"] and round(found, 2) == row["published"]


def test_case_0_of_llama_cpp_lies_between_a_free_and_a_measured_check() -> None:
    row, k = CASE_0, CASE_0["draft_tokens"]
    mean_tok_s = (row["draft_tok_s"] + row["target_five_tokens_tok_s"]) / 2
    theory = speedup(row["alpha"], draft_tokens=k, draft_cost=row["target_tok_s"] / mean_tok_s)
    assert round(theory, 3) == row["theory"]
    measured = VerifyCost.from_steps(
        {1: 1 / row["target_tok_s"], 6: 6 / row["target_five_tokens_tok_s"]}
    )
    draft_cost = row["target_tok_s"] / row["draft_tok_s"]
    low, high = (
        speedup(row["alpha"], draft_tokens=k, draft_cost=draft_cost, verify_cost=cost)
        for cost in (measured, lambda k: 1.0)
    )
    assert low < row["measured"] < high


def test_second_token_of_deepseek_v3() -> None:
    row = FACTS["deepseek_mtp"]
    found = [expected_tokens(a, draft_tokens=row["draft_tokens"]) for a in row["acceptance"]]
    assert found == pytest.approx(row["no_overhead"]) and min(found) >= row["published"]


def test_a_chain_cannot_reach_the_length_of_a_tree() -> None:
    row = FACTS["eagle_tree"]
    longest = expected_tokens(row["alpha"], draft_tokens=1000)
    assert round(longest, 2) == row["chain_limit"] < row["tokens_per_step"]
    assert equivalent_acceptance(row["tokens_per_step"], draft_tokens=1000) > row["alpha"]


def test_claims_quote_these_rows() -> None:
    by_size = {(r["alpha"], r["draft_tokens"]): r["published_speedup"] for r in FACTS["table1"]}
    rows = {name(r): r for r in FACTS["table2"]}
    assert claim("leviathan-table-1").number == by_size[0.8, 5]
    assert claim("leviathan-t5-small").number == rows["EnDe-0-small"]["measured"]
    assert claim("leviathan-t5-large").number == rows["EnDe-0-large"]["measured"]
    assert claim("chinchilla-speculative").number == FACTS["chinchilla"]["published"][1]
    assert claim("llama-cpp-check-is-not-free").number == CASE_0["measured"]
    assert claim("deepseek-mtp").number == FACTS["deepseek_mtp"]["published"]
    assert claim("eagle-tree").number == FACTS["eagle_tree"]["tokens_per_step"]


def test_the_facts_are_those_of_the_reference() -> None:
    if not SHARED.exists():
        pytest.skip("the reference folder is not beside this checkout")
    given = json.loads(SHARED.read_text())
    one = [(r["alpha"], r["gamma"], r["published_ops"], r["published_speed"], r["ours_ops"],
            r["ours_speed"]) for r in given["table1"]]  # fmt: skip
    assert one == [
        (r["alpha"], r["draft_tokens"], r["published_operations"], r["published_speedup"],
         r["operations"], r["speedup"]) for r in FACTS["table1"]
    ]  # fmt: skip
    two = [(r["task"], r["temp"], r["draft"], r["gamma"], r["alpha"], r["c"], r["measured"],
            r["theory"]) for r in given["table2_T5_XXL"]]  # fmt: skip
    assert two == [
        (r["task"], r["temperature"], r["draft"], r["draft_tokens"], r["alpha"], r["draft_cost"],
         r["measured"], r["theory"]) for r in FACTS["table2"]
    ]  # fmt: skip
    corrected, case_0, mtp, _, eagle = given["other"]
    assert corrected["ours"] == FACTS["llama_cpp"]["corrected"]["speedup"]
    assert (case_0["theory"], case_0["measured"]) == (CASE_0["theory"], CASE_0["measured"])
    assert mtp["ours_no_overhead"] == FACTS["deepseek_mtp"]["no_overhead"]
    assert eagle["ours_chain_limit"] == FACTS["eagle_tree"]["chain_limit"]
