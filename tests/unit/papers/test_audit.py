"""The audit finds each planted trap and says nothing about a clean record."""

from __future__ import annotations

from pathlib import Path

import pytest

from turbo_lab.papers.audit import MISSING, TRAPS, audit
from turbo_lab.papers.schema import Claim, Conditions
from turbo_lab.papers.store import list_records, read_record

HERE = Path(__file__).parent
PLANTED = {
    "precision_dividend", "batch_changed", "logging_changed", "hardware_changed", "model_changed",
    "compared_only_with_itself", "percentile_of_survivors", "version_drift", "special_hardware",
    "simulated", "best_case_only", "from_memory", "second_hand",
}  # fmt: skip


def test_every_planted_trap_is_found_and_no_other():
    found = audit(read_record(HERE / "trapped.yaml"))
    assert set(found.traps) == PLANTED
    assert set(found.missing) == {f"missing_{name}" for name in MISSING}


def test_a_clean_record_has_no_remark():
    assert audit(read_record(HERE / "clean.yaml")).remarks == ()


@pytest.mark.parametrize("name", list(MISSING))
def test_each_missing_condition_alone_is_named(name):
    clean = read_record(HERE / "clean.yaml")
    conditions = Conditions(**{**clean.conditions.model_dump(), name: False})
    assert audit(clean.model_copy(update={"conditions": conditions})).ids == (f"missing_{name}",)


@pytest.mark.parametrize(
    ("change", "trap"),
    [
        ({"changed": ("precision",)}, "precision_dividend"),
        ({"changed": ("batch",)}, "batch_changed"),
        ({"changed": ("logging",)}, "logging_changed"),
        ({"against": "naive"}, "weak_baseline"),
        ({"against": "none"}, "no_baseline"),
        ({"counted": "survivors"}, "percentile_of_survivors"),
        ({"number": None}, "number_not_found"),
        ({"simulated": True}, "simulated"),
        ({"status": "memory"}, "from_memory"),
        ({"status": "secondary"}, "second_hand"),
    ],
)
def test_each_trap_of_a_claim_alone_is_named(change, trap):
    clean = read_record(HERE / "clean.yaml")
    claims = (Claim(**{**clean.claims[0].model_dump(), **change}), clean.claims[1])
    found = audit(clean.model_copy(update={"claims": claims}))
    assert found.traps == (trap,)
    assert found.remarks[0].claim == 1


def test_a_comparison_with_another_system_lifts_the_charge_of_self_comparison():
    clean = read_record(HERE / "clean.yaml")
    own = clean.claims[0].model_copy(update={"against": "itself"})
    assert audit(clean.model_copy(update={"claims": (own,)})).traps == (
        "compared_only_with_itself",
    )
    assert audit(clean.model_copy(update={"claims": (own, clean.claims[1])})).traps == ()


def test_ids_are_known_and_each_trap_has_a_text():
    for one in list_records():
        for remark in audit(one).remarks:
            assert remark.id in TRAPS or remark.id.removeprefix("missing_") in MISSING
            assert remark.evidence
    assert all(len(text) > 20 for text in TRAPS.values())


def test_known_papers_get_the_remarks_that_their_numbers_need():
    by_id = {one.id: set(audit(one).ids) for one in list_records()}
    assert "weak_baseline" in by_id["h2o"]
    assert "version_drift" in by_id["sarathi-serve"]
    assert "special_hardware" in by_id["swiftep"]
    assert "precision_dividend" in by_id["awq"]
    assert "compared_only_with_itself" in by_id["leviathan-spec-decoding"]
    assert "batch_changed" in by_id["flexgen"]
    assert not {i for i in by_id["flexgen"] if i.startswith("missing_")}
