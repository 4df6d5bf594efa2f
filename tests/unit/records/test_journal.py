from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import RecordError
from turbo_lab.records.journal import Journal, append_row, read_rows


def test_rows_come_back_in_order(tmp_path):
    for n in range(5):
        append_row(tmp_path / "deep" / "run.jsonl", {"n": n, "text": "é\n"})
    assert [row["n"] for row in read_rows(tmp_path / "deep" / "run.jsonl")] == [0, 1, 2, 3, 4]


def test_a_run_that_never_began_is_empty(tmp_path):
    assert read_rows(tmp_path / "run.jsonl") == []


@given(cut=st.integers(min_value=1, max_value=200))
def test_a_run_killed_at_any_byte_resumes(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("run") / "run.jsonl"
    for n in range(4):
        append_row(path, {"n": n, "text": "täxt " * 3})
    content = path.read_bytes()
    path.write_bytes(content[: max(0, len(content) - cut)])
    whole = read_rows(path)
    assert [row["n"] for row in whole] == list(range(len(whole)))
    append_row(path, {"n": len(whole)})
    assert [row["n"] for row in read_rows(path)] == list(range(len(whole) + 1))


@pytest.mark.parametrize("line", ["{", "[1]", "7", ""])
def test_damage_in_the_middle_is_named(tmp_path, line):
    path = tmp_path / "run.jsonl"
    path.write_text('{"n": 0}\n' + line + '\n{"n": 2}\n')
    with pytest.raises(RecordError, match="line 2"):
        read_rows(path)


def test_rows_are_redacted_and_must_be_json(tmp_path):
    append_row(tmp_path / "run.jsonl", {"api_key": "abc"})
    assert "abc" not in (tmp_path / "run.jsonl").read_text()
    with pytest.raises(RecordError, match="cannot be stored"):
        append_row(tmp_path / "run.jsonl", {"x": float("nan")})


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="could not be extended"):
        append_row(tmp_path / "file" / "run.jsonl", {"n": 1})


def test_what_json_cannot_hold_is_refused_and_what_was_there_stays(tmp_path):
    path = tmp_path / "run.jsonl"
    with Journal(path) as journal:
        journal.append({"n": 0})
        for bad in (float("nan"), object()):
            with pytest.raises(RecordError, match="cannot be stored"):
                journal.append({"n": bad})
    assert read_rows(path) == [{"n": 0}]
