from __future__ import annotations

import json

import pytest

from turbo_lab.core.errors import RecordError, UnmeasuredError, UsageError
from turbo_lab.course import start_lesson
from turbo_lab.course.display import Absent
from turbo_lab.records import store


def fail(reason):
    raise UnmeasuredError(reason)


def never():
    raise AssertionError("a measuring function was called in replay")


def test_replay_shows_the_record_and_calls_nothing(replayed, capsys):
    lab = replayed()
    start = capsys.readouterr().out.splitlines()
    assert start[0] == ("Notebook 01: mode replay, effort quick (recorded results were asked for).")
    assert start[1].startswith("All numbers were recorded on ")
    lab.predict("pool_tokens", 23296, unit="tokens", tolerance=0.0)
    lab.predict("ttft_s", 0.5, unit="s", band=(None, 0.6))
    assert lab.measure("pool_tokens", never, unit="tokens").value == 23296
    assert "(recorded on " in capsys.readouterr().out
    assert lab.measure("ttft_s", never, unit="s").samples == (0.4, 0.5, 0.7)
    assert lab.observe("gaps_s", never) == [0.1, 0.2]
    assert repr(lab.text("{ttft_s[lines]}", ttft_s={"lines": "kept"})) == "kept"
    assert lab.compare().met == 2


def test_replay_is_deterministic(replayed, capsys):
    def outputs():
        lab = replayed()
        lab.predict("pool_tokens", 1, unit="tokens", tolerance=0.0)
        lab.measure("pool_tokens", never, unit="tokens")
        table = lab.compare()
        return capsys.readouterr().out, repr(table), table._repr_html_()

    capsys.readouterr()
    assert outputs() == outputs()


def test_a_prediction_changed_since_the_run_is_told(replayed):
    lab = replayed()
    lab.predict("pool_tokens", 23297, unit="tokens", tolerance=0.0)
    lab.predict("ttft_s", 0.5 * (1 + 1e-12), unit="s", band=(None, 0.6))
    text = repr(lab.compare())
    assert "pool_tokens: the run that measured had predicted 23,296 tokens, exact" in text
    assert "ttft_s: the run" not in text


def test_replay_needs_the_prediction_too(replayed):
    with pytest.raises(UsageError, match="no prediction yet"):
        replayed().measure("pool_tokens", never, unit="tokens")


def test_what_was_not_recorded_is_unmeasured(replayed, capsys):
    lab = replayed()
    lab.predict("new_thing", 1, unit="s", tolerance=0.1)
    assert lab.measure("new_thing", never, unit="s").reason == "not in the record"
    assert lab.observe("other", never) is None
    assert "other is unmeasured: not in the record" in capsys.readouterr().out


def test_a_changed_unit_is_noticed(replayed):
    lab = replayed()
    lab.predict("ttft_s", 500, unit="ms", tolerance=0.1)
    with pytest.raises(RecordError, match="recorded in 's', not 'ms'"):
        lab.measure("ttft_s", never, unit="ms")


def test_replay_starts_no_engine(replayed):
    server = replayed().engine(never)
    assert isinstance(server, Absent) and not server
    with pytest.raises(UnmeasuredError, match="no engine runs in replay"):
        server.metrics()


def test_replay_in_a_run_leaves_a_labelled_record_that_cannot_be_promoted(
    replayed, run_folder, tmp_path
):
    lab = replayed()
    lab.predict("pool_tokens", 1, unit="tokens", tolerance=0.0)
    lab.measure("pool_tokens", never, unit="tokens")
    lab.compare()
    record = store.load(run_folder / "records" / "nb01.json")
    assert record.mode == "replay" and record.replayed_from.startswith("sha256:")
    assert record.predictions_met == 0
    with pytest.raises(RecordError, match="was replayed"):
        store.promote(run_folder / "records" / "nb01.json", study="nb01", folder=tmp_path / "r")


def test_replay_by_hand_writes_nothing(replayed, monkeypatch):
    monkeypatch.delenv("TURBO_LAB_RUN_DIR")
    lab = replayed()
    assert lab.path is None and lab.save() is None


def test_another_effort_falls_back_to_the_record_there_is(replayed, capsys):
    capsys.readouterr()
    replayed(effort="smoke")
    assert "effort quick." in capsys.readouterr().out.splitlines()[1]


def test_a_missing_record_names_the_path_and_the_way(tmp_path):
    with pytest.raises(RecordError, match=r"nb05/quick\.json does not exist.*turbo-lab run 05"):
        start_lesson("05", mode="replay", records=tmp_path)


def test_a_damaged_record_is_refused(replayed, tmp_path):
    path = tmp_path / "records" / "nb01" / "quick.json"
    data = json.loads(path.read_text())
    data["measurements"][0]["value"] = 99999
    path.write_text(json.dumps(data))
    with pytest.raises(RecordError, match="changed after it was written"):
        replayed()
