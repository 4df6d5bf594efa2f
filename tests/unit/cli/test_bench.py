"""bench, compare, verify, import, sweep and study from the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from turbo_lab.cli import bench
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer

QUICK = ("--requests", "10", "--concurrency", "5", "--input-tokens", "8", "--output-tokens", "3",
         "--no-calibrate", "--warmup", "0")  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def lab(home):
    def run(*arguments: str, **env: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "turbo_lab.cli.main", *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, cwd=home,
            env={**os.environ, "TURBO_LAB_CACHE": str(home / "cache"), **env},
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def server():
    with MockServer(Script(replies=(Reply(speech=Speech(ttft_s=0.05, gap_s=0.01)),))) as mock:
        yield mock.base_url


@pytest.fixture(scope="module")
def first(lab, server, home):
    return lab("bench", server, *QUICK, "--slo", "ttft=2.5", "--slo", "tpot=0.5", "--out",
               home / "a", "--json", "--set", "dtype=bf16", "--price-per-hour", "3.6")  # fmt: skip


def test_bench_prints_one_json_object(first, home):
    assert first.returncode == 0, first.stderr
    data = json.loads(first.stdout)
    assert data["verdict"] == "ok" and data["complete"] and data["succeeded"] == 10
    assert data["metrics"]["ttft_s"]["p95"] >= 0.05
    assert data["slo"]["attained"] == 10 and data["slo"]["limits_s"] == {"ttft": 2.5, "tpot": 0.5}
    rate = data["quantities"]["output_rate_tok_s"]["value"]
    assert data["cost"]["value"] == pytest.approx(3.6 / 3600 / rate * 1e6)
    assert data["variables"]["dtype"] == "bf16" and data["variables"]["model"] == "mock"
    assert {p.name for p in (home / "a").iterdir()} == {
        "record.json", "requests.jsonl", "resources.jsonl", "report.html",
    }  # fmt: skip


def test_the_report_needs_no_network_and_prints(first, home):
    page = (home / "a" / "report.html").read_text()
    links = re.findall(r"""(?:src|href)=["']?([^"'\s>]+)|url\(([^)]+)\)""", page)
    assert all((a or b).startswith("#") for a, b in links), links
    assert "<script" not in page and "@import" not in page and "@media print" in page
    assert page.count("<figure>") == 3 and 'role="img" aria-label=' in page
    assert "Validity gates" in page and "not certified" not in page


def test_compare_json_has_the_fixed_keys(first, lab, server, home):
    done = lab("bench", server, *QUICK, "--out", home / "b", "--json", "--set", "dtype=bf16")
    assert done.returncode == 0
    found = lab("compare", home / "a", home / "b", "--declared", "dtype", "--metric", "ttft",
                "--json", "--report", home / "c.html")  # fmt: skip
    assert found.returncode == 0, found.stderr
    data = json.loads(found.stdout)
    assert {"verdict", "attributable", "changed", "noise_floor", "effect", "interval"} <= set(data)
    assert data["changed"] == [] and data["attributable"] is False
    assert data["verdict"] in ("no difference shown", "worse", "better")
    assert len(data["interval"]) == 2 and data["noise_floor"] > 0
    assert "<svg" in (home / "c.html").read_text()


def test_compare_is_zero_whatever_the_verdict_and_fails_only_by_itself(first, lab, server, home):
    slow = Script(replies=(Reply(speech=Speech(ttft_s=0.4)),))
    with MockServer(slow) as mock:
        lab("bench", mock.base_url, *QUICK, "--out", home / "slow", "--set", "dtype=fp8",
            "--set", "eager=true")  # fmt: skip
    found = lab("compare", home / "a", home / "slow", "--declared", "dtype", "--metric", "ttft")
    assert found.returncode == 0
    assert "verdict: worse" in found.stdout and "because" not in found.stdout
    assert "besides dtype also eager differ" in found.stdout
    assert lab("compare", home / "a", home / "nowhere").returncode == 1
    assert lab("compare", home / "a", home / "slow", "--metric", "speed").returncode == 2


def test_verify_a_record(first, lab, home):
    whole = lab("verify", home / "a", "--digest-only")
    assert whole.returncode == 0 and "whole, sha256:" in whole.stdout
    found = lab("verify", home / "a", "--metric", "ttft", "--json", "--no-calibrate",
                "--out", home / "again")  # fmt: skip
    data = json.loads(found.stdout)
    assert data["whole"] and data["checks"][0]["metric"] == "ttft_s.p50"
    assert found.returncode == (0 if data["reproduced"] else 1)
    text = (home / "a" / "record.json").read_text().replace('"dtype": "bf16"', '"dtype": "fp8"')
    (home / "edited.json").write_text(text)
    edited = lab("verify", home / "edited.json", "--digest-only")
    assert edited.returncode == 1 and "changed after it was written" in edited.stderr


def test_import_a_result(lab, home):
    (home / "v.json").write_text(json.dumps({
        "completed": 1, "failed": 0, "request_throughput": 1.0, "median_ttft_ms": 20.0,
    }))  # fmt: skip
    done = lab("import", home / "v.json", "--from", "vllm", "--json")
    assert json.loads(done.stdout)["metrics"]["ttft_s"]["median"] == 0.02
    assert (home / "v.record.json").exists()
    assert lab("import", home / "v.json", "--from", "nobody").returncode == 2
    assert lab("import", home / "v.json", "--from", "guidellm").returncode == 1


def test_all_failed_is_exit_code_one_and_no_data(lab, home):
    bad = Script(replies=(Reply(status=500, match="r0"), Reply(speech=Speech(ttft_s=0.01))))
    with MockServer(bad) as mock:
        done = lab("bench", mock.base_url, *QUICK, "--out", home / "dead", "--json")
    data = json.loads(done.stdout)
    assert done.returncode == 1 and data["verdict"] == "no data" and data["valid"] is False
    assert data["metrics"]["ttft_s"]["median"] is None and data["failures"] == {"HTTP 500": 10}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "exactly one of --rate"),
        (("--rate", "2", "--concurrency", "2"), "exactly one"),
        (("--rate", "2", "--slo", "ttft"), "not NAME=VALUE"),
        (("--rate", "2", "--slo", "ttft=fast"), "takes seconds"),
        (("--rate", "2", "--set", "requests=3"), "cannot be declared"),
        (("--rate", "2", "--resume"), "--out DIR"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_two(lab, server, arguments, words):
    done = lab("bench", server, "--model", "m", *arguments)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_no_server_is_one_line_and_exit_code_one(lab, home):
    done = lab("bench", "http://127.0.0.1:9", "--rate", "1", "--out", home / "none")
    assert done.returncode == 1 and "nothing listens" in done.stderr
    done = lab("bench", "ftp://x", "--rate", "1", "--model", "m", "--out", home / "none")
    assert done.returncode == 2 and "http://" in done.stderr


def test_progress_in_a_log_is_plain_lines(lab, server, home):
    done = lab("bench", server, *QUICK, "--out", home / "plain")
    assert "10 of 10 requests" in done.stdout and "\x1b[" not in done.stdout
    assert "Validity gates" in done.stdout and "report.html" in done.stdout


def test_sweep_over_the_load(lab, server, home):
    done = lab("sweep", server, "--vary", "concurrency=1,5", "--metric", "e2e", "--restarts", "1",
               "--requests", "5", "--input-tokens", "8", "--output-tokens", "3", "--out",
               home / "sweep", "--no-calibrate", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["measured"] == {"1": 1, "5": 1} and len(data["comparisons"]) == 1
    done = lab("sweep", server, "--vary", "dtype=a,b", "--metric", "ttft")
    assert done.returncode == 2 and "only a sweep of `vllm` can restart it" in done.stderr


def test_study_lists_and_refuses(lab):
    assert "aa" in json.loads(lab("study", "--json").stdout)
    done = lab("study", "nothing", TURBO_LAB_MODE="replay")
    assert done.returncode == 2 and "there is no study 'nothing'" in done.stderr
    done = lab("study", "aa", TURBO_LAB_MODE="replay")
    assert done.returncode == 2 and "mode is replay" in done.stderr


def test_verify_takes_one_run(first, lab, home):
    for name in ("one", "two"):
        (home / "pair" / name).mkdir(parents=True)
        (home / "pair" / name / "record.json").write_bytes((home / "a/record.json").read_bytes())
    found = lab("verify", home / "pair")
    assert found.returncode == 2 and "holds 2 runs" in found.stderr
    assert lab("verify", home / "pair", "--digest-only").returncode == 0


def test_sweep_refuses_before_it_asks_the_server(lab):
    for target, vary, words in (
        ("vlm", "concurrency=1,2", "URL"), ("http://127.0.0.1:9", "concurrency", "gives no values"),
        ("http://127.0.0.1:9", "concurency=1,2", "Did you mean 'concurrency'?"),
        ("http://127.0.0.1:9", "concurrency=1,x", "whole numbers"),
    ):  # fmt: skip
        found = lab("sweep", target, "--vary", vary, "--metric", "e2e")
        assert found.returncode == 2 and words in found.stderr, found.stderr
        assert "Traceback" not in found.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no such signal")
@pytest.mark.parametrize("nohup", [False, True])
def test_a_closed_terminal_ends_a_run_like_ctrl_c_but_not_under_nohup(monkeypatch, nohup):
    handlers: dict[int, Callable] = {}
    before = signal.SIG_IGN if nohup else signal.SIG_DFL
    monkeypatch.setattr(signal, "getsignal", lambda _: before)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    bench._sigterm_interrupts()
    assert set(handlers) == (set() if nohup else {signal.SIGTERM, signal.SIGHUP})
    for handler in handlers.values():
        with pytest.raises(KeyboardInterrupt):
            handler()
