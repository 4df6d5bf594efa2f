"""Timelines as a target of the doctor: a run's journal, a plain file, a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turbo_lab.core.errors import RecordError
from turbo_lab.core.host import repository_root
from turbo_lab.diagnose.doctor import diagnose
from turbo_lab.experiment import run_folder
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records import store

RECORD = sorted((repository_root() / "data" / "records").glob("*/*.json"))[0]


def refused_runs(count: int) -> list[Timeline]:
    return [
        Timeline(sent_s=float(i), status_code=429, closed_s=i + 0.1, error="HTTP 429: slow down",
                 request_id=f"r{i}")
        for i in range(count)
    ]  # fmt: skip


def journal(folder: Path, runs: list[Timeline]) -> Path:
    with run_folder.begin(folder, {"plan": {"model": "m"}}) as rows:
        rows.append({"kind": "session", "started_at": "now", "clock_s": 0.0})
        for index, one in enumerate(runs):
            rows.append(run_folder.request_row(index, one))
    return folder / run_folder.REQUESTS_NAME


def test_a_runs_requests_are_read_as_the_client_saw_them(tmp_path):
    path = journal(tmp_path, refused_runs(4))
    with path.open("a") as rows:
        rows.write('{"kind":"requ')  # the run was killed
    for target in (path, tmp_path):
        told = diagnose([target])
        assert told.causes == ("rate_limited",)
        assert told.findings[0].source == "requests.jsonl" and told.findings[0].count == 4
        assert told.read[0] | {"target": ""} == {
            "target": "", "kind": "timelines", "known": True, "requests": 4,
        }  # fmt: skip


def test_timelines_one_a_line_are_read_too(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(t.to_dict()) + "\n" for t in refused_runs(3)))
    assert diagnose([path]).causes == ("rate_limited",)
    path.write_text(json.dumps({**refused_runs(1)[0].to_dict(), "chunks": 5}) + "\n")
    with pytest.raises(RecordError, match="no timeline"):
        diagnose([path])


def test_a_run_without_a_finished_request_is_not_called_healthy(tmp_path):
    told = diagnose([journal(tmp_path, [])])
    assert told.findings == () and told.collect[0].startswith("no request had ended")


def test_a_runs_folder_stands_for_its_record_and_its_requests(tmp_path):
    journal(tmp_path, refused_runs(2))
    record = store.load(RECORD)
    store.write(record, tmp_path / "record.json")
    assert [row["kind"] for row in diagnose([tmp_path]).read] == ["record", "timelines"]
