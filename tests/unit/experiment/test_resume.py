"""Killed clients, dead servers, full disks: what was measured stays, and the run goes on."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.engines.base import free_port
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment.bench import run_bench
from turbo_lab.experiment.progress import Silent
from turbo_lab.experiment.run_folder import REQUESTS_NAME, load_run
from turbo_lab.records import store
from turbo_lab.records.journal import Journal, read_rows

from .conftest import made_run, quick_options, quick_plan

# Slow enough that a busy machine still sends the signal in the middle of 40 requests.
SLOW = Script(replies=(Reply(speech=Speech(ttft_s=0.12, gap_s=0.0)),))
ARGUMENTS = ("--requests", "40", "--concurrency", "1", "--input-tokens", "8", "--output-tokens",
             "2", "--no-calibrate", "--warmup", "0", "--model", "mock", "--json")  # fmt: skip


def start(url, folder, *more, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "turbo_lab.cli.main", "bench", url, "--out", str(folder)]
    return subprocess.Popen(
        [*command, *ARGUMENTS, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        **{"preexec_fn": listen_to_interrupts, **options},
    )  # fmt: skip


def listen_to_interrupts() -> None:
    """A background job of a shell ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for_rows(folder, count, process) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        path = folder / REQUESTS_NAME
        if path.exists() and path.read_bytes().count(b'"request"') >= count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("the client measured nothing")


def numbers(folder) -> list[int]:
    return [r["index"] for r in read_rows(folder / REQUESTS_NAME) if r["kind"] == "request"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_client_loses_nothing_and_the_resumed_run_has_no_duplicates(tmp_path, how):
    folder = tmp_path / "run"
    with MockServer(SLOW) as server:
        client = start(server.base_url, folder)
        wait_for_rows(folder, 5, client)
        client.send_signal(how)
        out, err = client.communicate(timeout=120)
        saved = load_run(folder)
        count = len(saved.timelines)
        assert 5 <= count < 40, (out, err)
        if how != signal.SIGKILL:
            assert client.returncode == 130
            record = store.load(folder / "record.json")
            assert not record.complete and saved.sessions[0].end == "interrupted"
            assert f"{count} of 40" in record.gates[0].detail
        again = start(server.base_url, folder, "--resume")
        out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert sorted(numbers(folder)) == list(range(40)), "each request once"
    result = json.loads(out)
    assert result["complete"] and result["succeeded"] == 40
    assert "in 2 sessions" in result["gates"][0]["detail"]


class StopsServer(Silent):
    def __init__(self, server, *, after) -> None:
        self.server, self.left = server, after

    def step(self, *, failed: bool) -> None:
        self.left -= 1
        if self.left == 0:
            threading.Thread(target=self.server.stop).start()


def test_a_dead_server_ends_the_run_soon_and_it_resumes(tmp_path):
    port = free_port()
    plan = quick_plan(requests=60, concurrency=2, timeout_s=5.0, warmup=0)
    with MockServer(SLOW, port=port) as server:
        stopper = StopsServer(server, after=10)
        first = run_bench(
            server.base_url, plan=plan, out=tmp_path, options=quick_options(progress=stopper)
        )
    assert not first.record.complete
    assert "in a row got no answer" in str(first.problem)
    assert "stopped" in load_run(tmp_path).sessions[0].end
    done = {i for i, t in load_run(tmp_path).timelines.items() if t.status_code == 200}
    assert done
    with MockServer(SLOW, port=port):
        second = run_bench(
            f"http://127.0.0.1:{port}", plan=plan, out=tmp_path,
            options=quick_options(resume=True),
        )  # fmt: skip
    assert second.record.complete and len(second.evidence.timelines) == 60
    gate = {g.name: g for g in second.record.gates}["server stayed up"]
    assert gate.passed is False and "died with the server" in gate.detail


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))


def test_a_full_disk_ends_the_run_with_its_reason_and_keeps_what_was_measured(tmp_path):
    with MockServer(SLOW) as server:
        client = start(server.base_url, tmp_path / "run", preexec_fn=limit_files)
        _, err = client.communicate(timeout=120)
        assert client.returncode == 1
        assert "could not be extended" in err and "--resume" in err
        count = len(load_run(tmp_path / "run").timelines)
        assert 5 < count < 40
        again = start(server.base_url, tmp_path / "run", "--resume")
        again.communicate(timeout=120)
    assert again.returncode == 0 and sorted(numbers(tmp_path / "run")) == list(range(40))


def test_resume_refuses_other_settings_and_another_server(tmp_path):
    made_run(tmp_path / "a")
    rows = (tmp_path / "a" / REQUESTS_NAME).read_text().splitlines()[:5]
    (tmp_path / "a" / REQUESTS_NAME).write_text("\n".join(rows) + "\n")
    options = quick_options(resume=True)
    with MockServer(SLOW) as server:
        with pytest.raises(UsageError, match=r"other settings \(output_tokens\)"):
            run_bench(server.base_url, plan=quick_plan(output_tokens=9), out=tmp_path / "a",
                      options=options)  # fmt: skip
        with pytest.raises(UsageError, match="the server changed since this run was begun"):
            run_bench(server.base_url, plan=quick_plan(), out=tmp_path / "a", options=options)
    with pytest.raises(UsageError, match="holds no run"):
        run_bench("http://127.0.0.1:9", plan=quick_plan(), out=tmp_path / "b", options=options)


def test_a_finished_run_is_not_measured_again(tmp_path):
    run = made_run(tmp_path / "a")
    again = run_bench("http://127.0.0.1:9", plan=quick_plan(), out=tmp_path / "a",
                      options=quick_options(resume=True))  # fmt: skip
    assert again.record == store.load(tmp_path / "a" / "record.json")
    assert len(again.evidence.timelines) == len(run.evidence.timelines)


def test_later_sessions_lie_behind_earlier_ones_whatever_their_clock(tmp_path):
    run = made_run(tmp_path / "a")
    rows = read_rows(tmp_path / "a" / REQUESTS_NAME)
    cut = [*rows[:12], {"kind": "session", "started_at": "later", "clock_s": 7.0}]
    late = rows[12]
    shift = late["timeline"]["sent_s"] - 7.5
    for key in ("sent_s", "connected_s", "closed_s"):
        late["timeline"][key] -= shift
    late["timeline"]["chunks"] = [[t - shift, n, k] for t, n, k in late["timeline"]["chunks"]]
    path = tmp_path / "a" / REQUESTS_NAME
    path.write_text("".join(json.dumps(r) + "\n" for r in [*cut, late]))
    saved = load_run(tmp_path / "a")
    end = max(t.closed_s for i, t in saved.timelines.items() if i < 10)
    assert saved.timelines[10].sent_s == pytest.approx(end + 0.5)
    assert len(saved.sessions) == 2 and run.evidence.plan.requests == 30


def test_a_torn_last_line_is_left_out_and_a_damaged_middle_is_told(tmp_path):
    made_run(tmp_path / "a")
    path = tmp_path / "a" / REQUESTS_NAME
    text = path.read_text()
    path.write_text(text[:-80])
    assert 28 <= len(load_run(tmp_path / "a").timelines) <= 30
    path.write_text(text.replace('"kind":"request","index":3', '"kind":"requ\n3', 1))
    with pytest.raises(RecordError, match="is damaged"):
        load_run(tmp_path / "a")


def test_a_row_that_does_not_fit_is_taken_back(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    journal.append({"a": 1})
    real = journal._file

    class Full:
        closed = False
        fileno = real.fileno
        tell = real.tell
        close = real.close

        def write(self, data):
            if len(data) > 4:
                return real.write(data[:4])
            raise OSError(28, "No space left on device")

    journal._file = Full()
    with pytest.raises(RecordError, match="No space left"):
        for _ in range(3):
            journal.append({"b": 22222})
    assert (tmp_path / "j.jsonl").read_text() == '{"a":1}\n'
    assert (tmp_path / "j.jsonl").stat().st_size == 8
