from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import RecordError
from turbo_lab.records import Record, canonical_json, digest_of, seal, verify
from turbo_lab.records.digest import file_sha256, folder_sha256

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=20
)


@given(values)
def test_the_digest_survives_a_round_trip_through_json(value):
    assert digest_of(json.loads(json.dumps(value))) == digest_of(value)


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(value):
    assert digest_of(dict(reversed(value.items()))) == digest_of(value)


def test_canonical_json_is_compact_sorted_and_readable():
    assert canonical_json({"b": [1, 2.5], "a": "é"}) == '{"a":"é","b":[1,2.5]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_json_cannot_hold_is_an_error(value):
    with pytest.raises(RecordError, match="cannot be stored"):
        digest_of(value)


def test_a_sealed_record_verifies(make_record):
    record = seal(make_record())
    assert verify(record) is record
    assert (record.predictions_met, record.predictions_total) == (1, 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("created_at", "2026-01-02T00:00:00Z"),
        ("mode", "gpu"),
        ("seed", 8),
        ("predictions_met", 2),
        ("measurements", ()),
        ("variables", {"x": 1}),
    ],
)
def test_any_changed_field_is_found(make_record, field, value):
    record = seal(make_record()).model_copy(update={field: value})
    with pytest.raises(RecordError, match="changed after it was written"):
        verify(record)


def test_a_verdict_changed_with_its_digest_is_found(make_record):
    from turbo_lab.records.digest import record_digest

    record = seal(make_record())
    rows = tuple(r.model_copy(update={"verdict": "met"}) for r in record.comparison)
    forged = record.model_copy(update={"comparison": rows})
    forged = forged.model_copy(update={"digest": record_digest(forged)})
    with pytest.raises(RecordError, match="do not follow"):
        verify(forged)


def test_a_count_changed_with_its_digest_is_found(make_record):
    from turbo_lab.records.digest import record_digest

    forged = seal(make_record()).model_copy(update={"predictions_met": 2})
    forged = forged.model_copy(update={"digest": record_digest(forged)})
    with pytest.raises(RecordError, match="do not follow"):
        verify(forged)


def test_unknown_is_null_and_never_left_out(make_record):
    data = make_record().model_dump(mode="json")
    for key in data:
        with pytest.raises(ValueError, match=key):
            Record.model_validate({k: v for k, v in data.items() if k != key})
    for key in data["environment"]:
        less = {k: v for k, v in data["environment"].items() if k != key}
        with pytest.raises(ValueError, match=key):
            Record.model_validate(data | {"environment": less})


def test_unknown_fields_are_refused(make_record):
    with pytest.raises(ValueError, match="extra"):
        Record.model_validate(make_record().model_dump(mode="json") | {"colour": "red"})


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_no_number_is_nan_or_infinite(make_record, number):
    data = make_record().model_dump(mode="json")
    data["measurements"][0]["samples"] = [number]
    with pytest.raises(ValueError, match="finite"):
        Record.model_validate(data)


def test_a_measurement_has_a_value_or_a_reason(make_record):
    data = make_record().model_dump(mode="json")
    data["measurements"][0]["value"] = None
    with pytest.raises(ValueError, match="a value or the reason"):
        Record.model_validate(data)


def test_checksums_of_files_and_folders(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"")
    empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert file_sha256(tmp_path / "a.safetensors") == empty
    before = folder_sha256(tmp_path)
    (tmp_path / "b.safetensors").write_bytes(b"x")
    assert before != folder_sha256(tmp_path)
    assert folder_sha256(tmp_path, pattern="*.bin") is None
    with pytest.raises(RecordError, match="No checksum of"):
        file_sha256(tmp_path / "missing")
