"""A batch job loses nothing, repeats what may pass and goes on where it was; the naive one not."""

from __future__ import annotations

from pathlib import Path

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.mock_script import Reply, Script, Speech, event, payload
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment.batch_job import JobReport, Task, may_pass, run_job
from turbo_lab.experiment.naive_job import run_naive
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records.journal import read_rows
from turbo_lab.workload.request import Request

QUICK = Reply(speech=Speech(ttft_s=0.01, gap_s=0.002, tokens=3))
FULL = Reply(status=503, content_type="application/json")
REFUSED = Reply(status=400, content_type="application/json")
CUT = Reply(steps=(event(payload("half")),), end="truncate")
SILENT = Reply(head_after_s=None)


def tasks(count: int) -> list[Task]:
    return [Task(f"t{i}", Request(f"question {i}", endpoint="completions")) for i in range(count)]


def job(script: Script, folder: Path, count: int = 6, **more: float) -> tuple[JobReport, int]:
    """The report, and how many requests the server saw."""
    silent = SILENT in script.replies
    options = {"concurrency": 3, "timeout_s": 2.0 if silent else 30.0, "pause_s": 0.0, **more}
    with MockServer(script) as server:
        report = run_job(tasks(count), base_url=server.base_url, folder=folder, **options)
        return report, len(server.log)


def answers(folder: Path) -> dict[str, str]:
    return {p.stem: p.read_text() for p in (folder / "answers").glob("*.txt")}


def test_every_task_has_a_file_of_its_own(tmp_path: Path) -> None:
    report, seen = job(Script(replies=(QUICK,)), tmp_path)
    assert len(report.done) == 6 == seen == report.sent and not report.failed
    assert answers(tmp_path) == {f"t{i}": " t0 t1 t2" for i in range(6)}


@pytest.mark.parametrize("fault", [FULL, CUT, SILENT], ids=["503", "cut", "time-out"])
def test_what_may_pass_is_tried_again_and_logged(tmp_path: Path, fault: Reply) -> None:
    report, seen = job(Script(replies=(fault, QUICK, QUICK, QUICK)), tmp_path, count=3)
    assert sorted(report.done) == ["t0", "t1", "t2"] and report.sent == seen == 4
    rows = read_rows(tmp_path / "attempts.jsonl")
    bad = [row for row in rows if not row["ok"]]
    assert len(rows) == 4 and len(bad) == 1 and bad[0]["reason"]
    again = [row for row in rows if row["task"] == bad[0]["task"]]
    assert [row["attempt"] for row in again] == [1, 2] and again[1]["ok"]


def test_a_refused_request_is_not_sent_again(tmp_path: Path) -> None:
    named = Reply(match="question 1", status=400, content_type="application/json")
    report, seen = job(Script(replies=(named, QUICK)), tmp_path, count=3)
    assert report.failed == {"t1": "HTTP 400"} and sorted(report.done) == ["t0", "t2"]
    assert seen == 3 and "t1" not in answers(tmp_path)


def test_attempts_end_and_the_reason_stays(tmp_path: Path) -> None:
    report, seen = job(Script(replies=(FULL,)), tmp_path, count=2, attempts=2)
    assert report.failed == {"t0": "HTTP 503", "t1": "HTTP 503"} and seen == 4
    assert not report.done and not answers(tmp_path)


def test_the_same_call_goes_on_and_sends_only_what_is_missing(tmp_path: Path) -> None:
    first, _ = job(Script(replies=(QUICK, FULL)), tmp_path, count=4, attempts=1)
    assert len(first.done) == 2
    before = answers(tmp_path)
    second, seen = job(Script(replies=(QUICK,)), tmp_path, count=4)
    assert seen == second.sent == 2 and len(second.kept) == 2 and len(second.done) == 2
    assert before.items() <= answers(tmp_path).items() and len(answers(tmp_path)) == 4
    assert job(Script(replies=(QUICK,)), tmp_path, count=4)[1] == 0


def test_double_and_impossible_names_are_refused(tmp_path: Path) -> None:
    request = Request("x")
    for names in (("a", "a"), ("../up",), ("",), ()):
        with pytest.raises(UsageError, match=r"unique names|file names"):
            run_job([Task(n, request) for n in names], base_url="http://127.0.0.1:9",
                    folder=tmp_path, concurrency=1, timeout_s=1)  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_what_may_pass() -> None:
    assert may_pass(Timeline(sent_s=0.0, closed_s=1.0, error="timed out after 1 s"))
    assert may_pass(Timeline(sent_s=0.0, closed_s=1.0, status_code=429))
    assert not may_pass(Timeline(sent_s=0.0, closed_s=1.0, status_code=404))
    good = Timeline(sent_s=0.0, closed_s=1.0, status_code=200, finish_reason="stop", saw_done=True)
    assert not may_pass(good)


def test_the_naive_job_overwrites_answers(tmp_path: Path) -> None:
    requests = [t.request for t in tasks(6)]
    with MockServer(Script(replies=(QUICK,))) as server:
        report = run_naive(requests, base_url=server.base_url, folder=tmp_path, timeout_s=30)
    assert report.answered == 6 and report.files <= 2 and report.overwritten >= 4
    assert "t0" not in (tmp_path / "job.log").read_text()


def test_the_naive_job_repeats_what_cannot_pass_and_times_out_in_the_queue(tmp_path: Path) -> None:
    requests = [t.request for t in tasks(6)]
    with MockServer(Script(replies=(REFUSED,))) as server:
        refused = run_naive(requests, base_url=server.base_url, folder=tmp_path / "a", timeout_s=30)
    assert refused.sent == 12 and refused.answered == 0
    slow = Reply(speech=Speech(ttft_s=0.2, gap_s=0.01, tokens=3))
    with MockServer(Script(replies=(slow,), slots=1)) as server:
        where = {"base_url": server.base_url}
        queued = run_naive(requests, folder=tmp_path / "b", timeout_s=0.4, attempts=1, **where)
        right = run_job(tasks(6), folder=tmp_path / "c", concurrency=1, timeout_s=30.0, **where)
    assert queued.answered < 3 and len(right.done) == 6 and right.sent == 6
