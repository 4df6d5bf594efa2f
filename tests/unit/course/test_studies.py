"""The table of a stored study: one row per value, whatever failed on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from turbo_lab.core.errors import RecordError, UnmeasuredError
from turbo_lab.course.studies import StoredStudy, stored_notebook, stored_study
from turbo_lab.experiment.measured import measurement
from turbo_lab.experiment.study import load_study, study_names
from turbo_lab.records import store
from turbo_lab.records.schema import Observation, Record

FOUND = [{"effect": 0.5, "verdict": "worse", "noise_floor": 0.04}]


def lesson_record() -> Record:
    return store.load(store.find("nb00", effort="quick"))


def study(samples: dict[int, list[float]], found: list[dict]) -> StoredStudy:
    told = {"question": "What?", "comparisons": found}
    return StoredStudy(
        lesson_record().model_copy(
            update={
                "variables": {"varied": "seats", "seats": [1, 4, 16]},
                "measurements": tuple(
                    measurement(f"ttft_s.p50 at seats={n}", "s", "", s) for n, s in samples.items()
                ),
                "observations": tuple(
                    Observation(name=n, data=d, reason=None) for n, d in told.items()
                ),
            }
        )
    )


def test_a_value_that_failed_has_an_empty_row_and_shifts_no_verdict() -> None:
    table = study({1: [0.2, 0.1, 0.3], 16: [0.3, 0.4]}, FOUND).frame()
    assert list(table.index) == [1, 4, 16]
    assert list(table["ttft_s.p50 [s]"].fillna(0)) == [0.2, 0, 0.35]
    assert list(table["restarts"]) == [3, 0, 2]
    assert list(table["against 1"]) == ["", "", "+50%, worse (noise floor 4%)"]


def test_no_data_says_so() -> None:
    found = [{"effect": None, "verdict": "no data", "noise_floor": None}]
    table = study({1: [0.2], 4: []}, found).frame()
    assert table.loc[4, "against 1"] == "no data"


def test_a_lesson_record_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="not a study"):
        _ = StoredStudy(lesson_record()).question
    with pytest.raises(RecordError, match="turbo-lab study load --mode cpu --effort full"):
        stored_study("load", folder=tmp_path)


@pytest.mark.parametrize("name", [p.name for p in store.records_folder().iterdir()
                                  if p.name in study_names()])  # fmt: skip
def test_stored_studies_are_those_described_in_data(name: str) -> None:
    stored, described = stored_study(name), load_study(name)
    assert stored.record.effort == "full" and stored.record.complete
    assert (stored.key, tuple(stored.values)) == (described.key, described.values)
    assert set(stored.frame()["restarts"]) == {described.restarts["full"]}
    comparisons = next(o.data for o in stored.record.observations if o.name == "comparisons")
    assert len(comparisons) == len(described.values) - 1
    for one in comparisons:  # A difference is the varied setting's, or there is none.
        assert one["attributable"] or one["verdict"] == "no difference shown"


def test_another_notebooks_numbers_come_with_their_place_and_date() -> None:
    stored = stored_notebook("06")
    record = stored.record
    first = next(m for m in record.measurements if m.value is not None)
    assert stored.measured(first.name) == first.value
    assert stored.predicted(record.predictions[0].name) == record.predictions[0].value
    assert stored.observed("steps_fp32")[0]["phase"] == "decode"
    assert stored.label.startswith("recorded on ") and record.created_at[:10] in stored.label


def test_what_another_notebook_has_not_measured_is_no_number(tmp_path: Path) -> None:
    stored = stored_notebook("06")
    for ask in (stored.measured, stored.predicted, stored.observed):
        with pytest.raises(UnmeasuredError, match="nb06 has no .*speed_of_light"):
            ask("speed_of_light")
    with pytest.raises(RecordError, match="turbo-lab run 06"):
        stored_notebook("06", folder=tmp_path)
