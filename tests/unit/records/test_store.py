from __future__ import annotations

import json
import os
import stat
import threading

import pytest

from turbo_lab.core.errors import RecordError
from turbo_lab.records import store
from turbo_lab.records.__main__ import main
from turbo_lab.records.schema import Gate


def test_written_records_come_back_whole(make_record, tmp_path):
    path = store.write(make_record(), tmp_path / "deep" / "nb01.json")
    record = store.load(path)
    assert record.measurements == make_record().measurements
    assert record.digest.startswith("sha256:")
    assert store.list_records(tmp_path) == (path,)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_writing_is_byte_for_byte_repeatable(make_record, tmp_path):
    one = store.write(make_record(), tmp_path / "a.json").read_bytes()
    assert one == store.write(make_record(), tmp_path / "b.json").read_bytes()


def test_secrets_and_user_names_never_reach_the_disk(make_record, tmp_path):
    text = store.write(make_record(), tmp_path / "a.json").read_text()
    assert "abc123" not in text and "ada" not in text and "~/models/smol" in text


def test_a_full_disk_leaves_the_old_file_and_no_rest(make_record, tmp_path, monkeypatch):
    path = store.write(make_record(), tmp_path / "a.json")
    before = path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match=r"a\.json could not be written: No space left"):
        store.write(make_record(seed=8), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_an_interrupt_leaves_no_rest(make_record, tmp_path, monkeypatch):
    def interrupted(handle):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.write(make_record(), tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_readers_never_see_half_a_record(make_record, tmp_path):
    path, stop, seen = tmp_path / "a.json", threading.Event(), []
    store.write(make_record(), path)

    def read():
        while not stop.is_set():
            seen.append(store.load(path).seed)

    reader = threading.Thread(target=read)
    reader.start()
    for seed in range(30):
        store.write(make_record(seed=seed), path)
    stop.set()
    reader.join()
    assert seen


def test_every_truncation_is_refused(make_record, tmp_path):
    path = store.write(make_record(), tmp_path / "a.json")
    content = path.read_bytes().rstrip()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(RecordError, match=r"a\.json"):
            store.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "schema_version None"),
        ("{}", "schema_version None"),
        ('{"schema_version": 2}', "schema_version 2; this version reads 1"),
        ('{"schema_version": 1}', "does not fit the schema: study"),
        ("not json", "not whole JSON"),
    ],
)
def test_other_content_is_named(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(RecordError, match=message):
        store.load(tmp_path / "a.json")


def test_missing_and_unreadable_paths_are_named(tmp_path):
    with pytest.raises(RecordError, match="no record at .*nothing"):
        store.load(tmp_path / "nothing.json")
    with pytest.raises(RecordError, match="cannot be read"):
        store.load(tmp_path)


def test_find_takes_the_effort_asked_for_then_the_richest(make_record, tmp_path):
    for effort in ("smoke", "full"):
        store.write(make_record(effort=effort), tmp_path / "nb01" / f"{effort}.json")
    assert store.find("nb01", effort="smoke", folder=tmp_path).name == "smoke.json"
    assert store.find("nb01", effort="quick", folder=tmp_path).name == "full.json"
    with pytest.raises(RecordError, match=r"nb02/quick\.json does not exist.*turbo-lab run 02"):
        store.find("nb02", effort="quick", folder=tmp_path)


# --- promoting


def promote(record, tmp_path, **rest):
    path = store.write(record, tmp_path / "run" / "records" / "nb01.json")
    return store.promote(path, **({"study": "nb01", "folder": tmp_path / "data"} | rest))


def test_promoting_takes_out_paths_and_seals_again(make_record, tmp_path):
    record = make_record(variables={"log": "/opt/run/7/server.log", "route": "/v1/completions"})
    path = promote(record, tmp_path)
    assert path == tmp_path / "data" / "nb01" / "quick.json"
    assert store.load(path).variables == {
        "log": "<path>/server.log",
        "route": "/v1/completions",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "replay"}, "was replayed"),
        ({"complete": False}, "ended before"),
        ({"study": "nb02"}, "belongs to 'nb02'"),
        ({"gates": (Gate(name="warm", passed=False, detail=""),)}, "gates failed: warm"),
    ],
)
def test_unfit_records_are_not_promoted(make_record, tmp_path, change, message):
    with pytest.raises(RecordError, match=message):
        promote(make_record(**change), tmp_path)
    assert not (tmp_path / "data").exists()


def test_an_edited_record_is_not_promoted(make_record, tmp_path):
    path = store.write(make_record(), tmp_path / "nb01.json")
    data = json.loads(path.read_text())
    data["measurements"][1]["value"] = 2
    path.write_text(json.dumps(data))
    with pytest.raises(RecordError, match="changed after"):
        store.promote(path, study="nb01", folder=tmp_path / "data")


def test_the_command_verifies_and_promotes(make_record, tmp_path, capsys, monkeypatch):
    path = store.write(make_record(), tmp_path / "nb01.json")
    monkeypatch.setattr(store, "records_folder", lambda: tmp_path / "data")
    assert main(["verify", str(path)]) == 0
    assert main(["promote", str(path)]) == 0
    assert (tmp_path / "data" / "nb01" / "quick.json").is_file()
    assert "whole; nb01, 1 of 2 predictions met" in capsys.readouterr().out
    path.write_text("{")
    assert main(["verify", str(path)]) == 1
    assert "not whole JSON" in capsys.readouterr().err


def test_every_record_in_the_repository_is_whole_and_anonymous():
    from turbo_lab.records.redact import anonymise

    for path in store.list_records(store.records_folder()):
        record = store.load(path)
        assert path.parent.name == record.study and path.stem == record.effort
        data = record.model_dump(mode="json")
        assert anonymise(data) == data, path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_or_a_device_is_written_to_and_never_replaced(tmp_path):
    """As root a rename would put a plain file in the place of /dev/null."""
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    assert store.write_text_atomically("text\n", pipe) == pipe
    reader.join(timeout=30)
    assert got == ["text\n"] and pipe.is_fifo()


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    file, link = tmp_path / "deep" / "file", tmp_path / "link"
    file.parent.mkdir()
    file.write_text("old")
    link.symlink_to(file)
    assert store.write_text_atomically("new", link) == link
    assert link.is_symlink() and file.read_text() == "new"
    assert list(file.parent.iterdir()) == [file]
