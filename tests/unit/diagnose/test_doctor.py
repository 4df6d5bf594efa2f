"""The doctor as a whole: what kind of target it is, exit codes, and the interview."""

from __future__ import annotations

import http.server
import json
import os
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turbo_lab.cli.main import build_app
from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.diagnose.causes import cause_named, list_causes
from turbo_lab.diagnose.doctor import diagnose, read_url
from turbo_lab.diagnose.interview import ORDERS, order_for, walk
from turbo_lab.diagnose.record_rules import GATES, record_findings
from turbo_lab.records import store
from turbo_lab.records.schema import Gate

RECORDS = sorted((repository_root() / "data" / "records").glob("*/*.json"))
FULL = "OSError: [Errno 28] No space left on device\n"


def run(*arguments: str, text: str | None = None):
    return CliRunner().invoke(build_app("doctor"), ["doctor", *arguments], input=text)


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "server.log"
    path.write_text("INFO:     Application startup complete.\n" + FULL)
    return path


def test_json_and_exit_codes_are_as_promised(log, tmp_path):
    done = run(str(log), "--json")
    assert done.exit_code == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["cause"] == "disk_full"
    assert {"cause", "confidence", "evidence", "next_probe", "fix"} <= set(finding)
    quiet = tmp_path / "quiet.log"
    quiet.write_text("INFO:     Application startup complete.\n")
    healthy = run(str(quiet), "--json")
    assert healthy.exit_code == 0
    assert json.loads(healthy.stdout) | {"read": []} == {
        "findings": [], "healthy": True, "known": True, "collect": [], "read": [],
    }  # fmt: skip
    for arguments in ([], [str(tmp_path / "none")], [str(log), "--symptom", "slow"],
                      ["--interview", "--symptom", "sad"]):  # fmt: skip
        assert run(*arguments).exception.exit_code == 2, arguments


def test_an_unknown_log_is_not_called_healthy(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("milk\neggs\n")
    told = diagnose([path])
    assert not told.findings and not told.known and not told.to_dict()["healthy"]
    assert any("log" in text for text in told.collect)
    assert "not recognised" in run(str(path)).stdout


def test_an_unknown_error_is_quoted_for_whoever_helps(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("ERROR 01-01 00:00:00 [core.py:1] FrobError: phase of engine\n")
    told = diagnose([path])
    assert told.known and "FrobError" in told.collect[0]
    assert run(str(path)).exit_code == 0


def test_a_run_folder_stands_for_its_log_and_an_empty_one_is_refused(log, tmp_path):
    assert diagnose([log.parent]).causes == ("disk_full",)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"record\.json"):
        diagnose([tmp_path / "empty"])


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_records_of_the_course_are_read(path):
    told = diagnose([path])
    assert told.known and told.read[0]["kind"] == "record"
    assert set(told.causes) <= {cause.cause for cause in list_causes()}


@pytest.mark.parametrize("gate", list(GATES))
def test_each_failed_gate_has_its_cause(gate):
    record = store.load(RECORDS[0]).model_copy(update={"measurements": ()})

    def with_gate(passed: bool | None):
        gates = (Gate(name=gate, passed=passed, detail="3 of 4"),)
        return record_findings(record.model_copy(update={"gates": gates}), source="r")

    (finding,) = with_gate(False)
    assert finding.cause == GATES[gate] and finding.evidence == "3 of 4"
    assert with_gate(True) == with_gate(None) == []


def test_a_slow_first_request_in_a_record_is_a_cold_start():
    record = store.load(RECORDS[0])
    row = record.measurements[0].model_copy(
        update={"name": "ttft_s", "samples": (3.0, 0.1, 0.1, 0.12, 0.1, 0.1)}
    )
    cold = record.model_copy(update={"measurements": (row,), "gates": ()})
    assert [f.cause for f in record_findings(cold, source="r")] == ["cold_start"]
    warm = row.model_copy(update={"samples": (0.2, 0.1, 0.1, 0.12, 0.1, 0.1)})
    assert record_findings(cold.model_copy(update={"measurements": (warm,)}), source="r") == []


def test_a_damaged_record_is_an_error_not_a_diagnosis(tmp_path):
    path = tmp_path / "record.json"
    path.write_text('{"schema_version": 1, "study": ')
    with pytest.raises(RecordError, match=r"record\.json"):
        diagnose([path])


server_key: list[str] = []


@pytest.fixture
def server():
    pages: list[str] = []
    server_key.clear()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = pages[0] if len(pages) == 1 else pages.pop(0)
            shut = bool(server_key) and self.headers["Authorization"] not in server_key
            self.send_response(401 if shut else 200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    one = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=one.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{one.server_port}", pages
    server_key.clear()
    one.shutdown()
    one.server_close()
    thread.join()


def test_a_url_is_read_at_its_metrics_path_and_only_its_recent_past_counts(server):
    url, pages = server
    rows = "vllm:num_preemptions_total {}\nvllm:generation_tokens_total {}\n" + (
        "vllm:e2e_request_latency_seconds_sum {}\nvllm:e2e_request_latency_seconds_count {}\n"
    )
    pages[:] = [rows.format(500, 1000, 10, 10), rows.format(500, 1900, 14, 14)]
    told = read_url(url, interval_s=0.01)
    assert told.total("preemptions") == 0 and told.total("generation_tokens") == 900
    pages[:] = ["vllm:num_requests_waiting 80\nvllm:num_requests_running 4\n"]
    done = run(url, "--interval-s", "0", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["findings"][0]["cause"] == "queue_pressure"
    assert diagnose([f"{url}/metrics"], interval_s=0).causes == ("queue_pressure",)


def test_a_dead_server_or_a_foreign_page_is_a_clear_error(server):
    url, pages = server
    pages[:] = ["python_gc_objects_collected_total 5\n"]
    with pytest.raises(RecordError, match="inference server"):
        read_url(url)
    with pytest.raises(RecordError, match="answered 404"):
        read_url(f"{url}/nothing")
    with pytest.raises(RecordError, match="does not answer"):
        read_url("http://127.0.0.1:9")


def test_a_server_that_does_not_answer_is_a_finding_beside_those_of_its_log(log):
    done = run("http://127.0.0.1:9", str(log), "--json")
    assert done.exit_code == 1
    told = {row["cause"]: row for row in json.loads(done.stdout)["findings"]}
    assert set(told) == {"server_unreachable", "disk_full"}
    found = told["server_unreachable"]
    assert "http://127.0.0.1:9/metrics" in found["evidence"] and "refused" in found["evidence"]
    assert found["next_probe"] and found["fix"] and found["source"] == "http://127.0.0.1:9"
    assert "server_unreachable" in run("http://127.0.0.1:9").stdout


def test_a_page_behind_a_key_is_read_with_it(server, monkeypatch):
    url, pages = server
    pages[:] = ["vllm:num_requests_waiting 80\nvllm:num_requests_running 4\n"]
    server_key.append("Bearer k")
    with pytest.raises(RecordError, match="TURBO_LAB_API_KEY"):
        read_url(url, interval_s=0)
    monkeypatch.setenv("TURBO_LAB_API_KEY", "k")
    assert diagnose([url], interval_s=0).causes == ("queue_pressure",)


@pytest.mark.parametrize("interval", ["nan", "inf", "-1"])
def test_an_interval_that_is_no_time_is_wrong_use(interval, log):
    for target in ("http://127.0.0.1:9", str(log)):
        assert run(target, "--interval-s", interval).exception.exit_code == 2
        with pytest.raises(UsageError, match=r"--interval-s"):
            diagnose([target], interval_s=float(interval))


@pytest.mark.parametrize("target", ["", " "])
def test_an_empty_target_is_not_the_current_folder(target, log, monkeypatch):
    monkeypatch.chdir(log.parent)
    assert run(target).exception.exit_code == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes as on Unix")
def test_a_pipe_and_a_device_are_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(UsageError, match="Save it first"):
            diagnose([path])


def test_an_empty_log_is_said_to_be_empty(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(b"")
    told = diagnose([path])
    assert not told.findings and not told.known and "is empty" in told.collect[0]
    assert "is empty" in run(str(path)).stdout


@pytest.mark.parametrize("url", ["http://h:abc", "http://", "http://h:99999", "http://h h:1"])
def test_an_impossible_address_is_wrong_use(url):
    assert run(url, "--json").exception.exit_code == 2
    with pytest.raises(UsageError, match="http://HOST:PORT"):
        read_url(url)


def test_several_targets_are_told_together(log, tmp_path):
    page = tmp_path / "metrics.txt"
    page.write_text("vllm:kv_cache_usage_perc 0.99\n")
    told = diagnose([log, page])
    assert told.causes == ("disk_full", "kv_pressure")
    assert {f.source for f in told.findings} == {"server.log", "metrics.txt"}


def test_the_interview_keeps_the_sources_orders():
    names = [step.name for step in order_for("slow")]
    assert names == ["log", "resources", "smallest request", "configuration"]
    general = ["input", "environment", "parameters", "code"]
    assert [step.name for step in order_for("error")] == general
    for symptom in ORDERS:
        kept = [step.name for step in order_for(symptom) if step.name in general]
        assert symptom == "slow" or kept == general
    asked = []
    done = walk("slow", says_yes=lambda step: asked.append(step.name) or step.name == "resources")
    assert asked == ["log", "resources"]
    assert cause_named("cpu_offload_active") in done.causes
    assert walk("error", says_yes=lambda step: False).causes == ()


def test_the_interview_talks_and_its_order_can_be_printed():
    talked = run("--interview", "--symptom", "slow", text="n\nn\ny\n")
    assert talked.exit_code == 0 and "cold_start" in talked.stdout
    orders = json.loads(run("--interview", "--json").stdout)
    assert set(orders) == set(ORDERS)


def test_the_table_of_causes_can_be_printed():
    text = run("--causes").stdout
    for cause in list_causes():
        assert cause.cause in text
    assert len(json.loads(run("--causes", "--json").stdout)) == len(list_causes())
