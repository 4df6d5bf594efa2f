"""A trial in a lesson: replayed from the record, and the full one beside it."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core import host
from turbo_lab.core.errors import RecordError
from turbo_lab.course.trials import recorded_trial
from turbo_lab.experiment import trial_verdict as verdicts
from turbo_lab.experiment.chain import chain_questions
from turbo_lab.records import store
from turbo_lab.records.digest import seal
from turbo_lab.records.schema import Record

FULL = host.repository_root() / "data" / "records" / "nb17" / "full.json"
ANSWERS = [q.answers for q in chain_questions()]
needs_record = pytest.mark.skipif(not FULL.is_file(), reason="the full record is not made yet")


class FakeLesson:
    study = "nb17"


def decisions(folder):
    found = recorded_trial(FakeLesson(), folder=folder)
    return {f.name: f.decision() for f in verdicts.findings(found.trial, answers=ANSWERS)}


def test_without_a_record_there_is_no_trial(tmp_path):
    assert recorded_trial(FakeLesson(), folder=tmp_path) is None


@needs_record
def test_the_stored_record_has_five_restarts_of_every_arm_and_is_labelled():
    found = recorded_trial(FakeLesson())
    assert found.trial.restarts >= 5 and "recorded on" in found.label


def copy_of(folder, change):
    raw = json.loads(FULL.read_text())
    change(next(o["data"] for o in raw["observations"] if o["name"] == "trial"))
    return store.write(seal(Record.model_validate(raw)), folder / "nb17" / "full.json")


@needs_record
def test_changing_the_samples_in_the_record_changes_its_verdicts(tmp_path):
    """Every candidate is made ten times as fast, then a tenth as fast, in the file alone."""
    primary = {}
    for factor in (10.0, 0.1):

        def scale(trial, factor=factor):
            first = trial["candidates"][0]["name"]
            for row in trial["rows"]:
                for found in row["record"]["measurements"]:
                    if row["arm"] != first and found["name"] == "output_rate_tok_s":
                        found["samples"] = [factor * v for v in found["samples"]]

        copy_of(tmp_path / str(factor), scale)
        trial = recorded_trial(FakeLesson(), folder=tmp_path / str(factor)).trial
        primary[factor] = {f.primary.verdict for f in verdicts.findings(trial, answers=ANSWERS)}
    assert primary == {10.0: {"better"}, 0.1: {"worse"}}


@needs_record
def test_changing_the_replies_in_the_record_changes_its_decisions(tmp_path):
    def silence(trial):
        first = trial["candidates"][0]["name"]
        for row in trial["rows"]:
            if row["arm"] != first:
                row["texts"] = ["" for _ in row["texts"]]

    copy_of(tmp_path, silence)
    reasons = {why for _, why in decisions(tmp_path).values()}
    assert reasons == {"fewer answers are right than the margin allows"}


@needs_record
def test_a_record_without_a_trial_is_named(tmp_path):
    raw = json.loads(FULL.read_text())
    raw["observations"] = [o for o in raw["observations"] if o["name"] != "trial"]
    store.write(seal(Record.model_validate(raw)), tmp_path / "nb17" / "full.json")
    with pytest.raises(RecordError, match="holds no trial"):
        recorded_trial(FakeLesson(), folder=tmp_path)
