"""The Prometheus configuration and the dashboard are whole and name metrics the kit knows."""

from __future__ import annotations

import json
import re

import yaml

from turbo_lab.core import host
from turbo_lab.experiment.gates import HITS, PREEMPTIONS, QUERIES
from turbo_lab.experiment.knees import KV_USAGE

FOLDER = host.repository_root() / "data" / "monitoring"


def test_prometheus_scrapes_the_metrics_page():
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    job = config["scrape_configs"][0]
    assert job["metrics_path"] == "/metrics" and job["static_configs"][0]["targets"]


def test_the_dashboard_draws_what_the_gates_read():
    board = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    text = " ".join(t["expr"] for p in board["panels"] for t in p["targets"])
    named = set(re.findall(r"vllm:\w+", text))
    assert {PREEMPTIONS[0], HITS[0], QUERIES[0], KV_USAGE[0]} <= named
    assert len({p["id"] for p in board["panels"]}) == len(board["panels"])
