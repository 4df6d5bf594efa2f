"""Resource samples: on our clock, crash-safe, and never a reason for the run to stop."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from turbo_lab.client import resources
from turbo_lab.client.local_process import describe_process, listening_process
from turbo_lab.client.probes import GpuProbe, Probes, parse_metrics
from turbo_lab.client.sampler import Sampler
from turbo_lab.client.stream import Target
from turbo_lab.core.errors import UsageError
from turbo_lab.engines.mock_script import Script
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment import ask


def test_samples_cover_the_run_on_the_clients_clock(tmp_path):
    with MockServer(Script(extra_metrics={"vllm:num_preemptions_total": 3.0})) as server:
        sampler = Sampler(
            tmp_path / "r.jsonl", pids={"client": os.getpid()}, interval_s=0.1,
            metrics_url=server.base_url + "/metrics",
        )  # fmt: skip
        sampler.start()
        before = time.perf_counter()
        spin_until = time.perf_counter() + 0.6
        while time.perf_counter() < spin_until:
            pass
        after = time.perf_counter()
        rows = sampler.stop()
    assert rows[0]["t_s"] <= before and rows[-1]["t_s"] >= after
    assert [r["t_s"] for r in rows] == sorted(r["t_s"] for r in rows)
    assert rows[-1]["engine"]["vllm:num_preemptions_total"] == 3.0
    assert rows[-1]["processes"]["client"]["resident_bytes"] > 2**20
    assert rows[-1]["page_cache_bytes"] is None or rows[-1]["page_cache_bytes"] > 0
    assert resources.describe(rows)["client_cores_max"] > 0.1
    assert rows[0]["gpus"] == [] or "utilisation_percent" in rows[0]["gpus"][0]


def test_an_engine_without_metrics_and_a_dead_process_are_null_with_a_reason(tmp_path):
    with Sampler(tmp_path / "r.jsonl", pids={"server": 2**22 - 5}, interval_s=0.1,
                 metrics_url="http://127.0.0.1:9/metrics") as sampler:  # fmt: skip
        rows = sampler.stop()
    assert rows[-1]["engine"] is None and "refused" in rows[-1]["engine_reason"]
    assert rows[-1]["processes"]["server"] is None


def test_the_sampler_ends_with_its_parent(tmp_path):
    code = (
        "from pathlib import Path; import os, time\n"
        "from turbo_lab.client.sampler import Sampler\n"
        f"s = Sampler(Path({str(tmp_path / 'r.jsonl')!r}), interval_s=0.1).start()\n"
        "print(s._child.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    child.wait(timeout=60)
    assert not child.is_running()


def test_a_killed_sampler_leaves_its_samples(tmp_path):
    sampler = Sampler(tmp_path / "r.jsonl", interval_s=0.1).start()
    sampler._child.kill()
    assert len(sampler.stop()) >= 1
    assert sampler.stop() != [], "twice is harmless"


def test_a_wrong_interval_is_refused(tmp_path):
    with pytest.raises(UsageError, match="at least 0.05"):
        Sampler(tmp_path / "r.jsonl", interval_s=0.0).start()


def test_metrics_are_summed_over_labels_and_buckets_left_out():
    text = (
        "# HELP a b\n"
        'vllm:num_requests_running{engine="0"} 2\nvllm:num_requests_running{engine="1"} 3\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="1"} 0.25\n'
        'vllm:e2e_bucket{le="+Inf"} 9\nvllm:x_created 1e9\npython_gc_objects 3\n'
        "vllm:nan_value NaN\nvllm:big +Inf\ngarbage line here\n"
    )
    assert parse_metrics(text) == {
        "vllm:num_requests_running": 5.0,
        "vllm:kv_cache_usage_perc": 0.5,
    }


def card(t_s, *, power_w=None, energy_mj=None) -> dict:
    return {"t_s": t_s, "gpus": [{"power_w": power_w, "energy_mj": energy_mj}]}


def test_energy_by_counter_else_by_power_else_unknown():
    counted = [card(0.0, power_w=1.0, energy_mj=1000), card(2.0, power_w=1.0, energy_mj=501000)]
    assert resources.energy_j(counted) == 500.0
    assert resources.energy_j([card(0.0, power_w=100.0), card(2.0, power_w=300.0)]) == 400.0
    assert resources.energy_j([card(0.0), card(1.0)]) is None
    assert resources.energy_j([{"t_s": 0.0, "gpus": []}] * 2) is None


def test_counter_growth_ignores_resets():
    def rows(*values):
        return [{"t_s": i, "engine": {"c": v}} for i, v in enumerate(values)]

    assert resources.growth(rows(5, 7, 9), "c") == 4
    assert resources.growth(rows(5, 7, 2), "c") is None, "the server was restarted"
    assert resources.growth(rows(5), "c") is None
    assert resources.growth([{"t_s": 0, "engine": None}] * 3, "c") is None


def test_without_nvml_there_is_a_reason():
    probe = GpuProbe()
    assert probe.sample() or probe.reason


def test_a_local_server_tells_its_command_and_start():
    with MockServer() as server:
        found = listening_process(server.base_url)
    assert found.pid == os.getpid() and found.command
    assert found.started == pytest.approx(psutil.Process().create_time(), abs=0.1)
    assert listening_process("http://192.0.2.1:8000") is None
    assert describe_process(2**22 - 5) is None


def test_only_telling_environment_is_kept(monkeypatch):
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(30)"],
        env={"VLLM_LOGGING_LEVEL": "DEBUG", "MY_SECRET": "x", "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        child.stdout.readline()
        found = describe_process(child.pid)
    finally:
        child.kill()
        child.wait()
    assert found.environment == {"VLLM_LOGGING_LEVEL": "DEBUG"}


def test_a_page_with_braces_quotes_exemplars_and_no_numbers_is_read():
    page = (
        'vllm:running{model_name="a\\"b}c, d"} 4\n'
        'vllm:running{model_name="e",engine="1"} 5 1700000000\n'
        'vllm:tokens_total{} 3 # {trace_id="x}y"} 0.5 1.0\n'
        'vllm:idle{m="x"} NaN\nvllm:wide{m="x"} +Inf\nvllm:cut{m="x\n'
        'vllm:ttft_bucket{le="+Inf"} 9\n'
    )
    assert parse_metrics(page) == {"vllm:running": 9.0, "vllm:tokens_total": 3.0}


def test_a_proxy_of_the_environment_is_not_asked_for_a_server(monkeypatch):
    """The load goes straight to the server; so do the questions beside it."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with MockServer(Script(extra_metrics={"vllm:x_total": 2.0})) as server:
        row = Probes(pids={}, metrics_url=server.base_url + "/metrics").sample()
        models = ask.get_json(Target(server.base_url), "/v1/models")
    assert row["engine_reason"] is None and row["engine"]["vllm:x_total"] == 2.0
    assert models["data"]
