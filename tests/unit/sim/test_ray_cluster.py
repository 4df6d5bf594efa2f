"""Sweeps on a Ray cluster of two local nodes; skipped without Ray, which no lock has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turbo_lab.sim.tasks import run_tasks

ray = pytest.importorskip("ray")


def where(task: dict[str, int]) -> dict[str, Any]:
    """The square, and the node that computed it."""
    import time

    time.sleep(0.5)  # Long enough that one node alone is not asked for all.
    return {"square": task["n"] ** 2, "node": ray.get_runtime_context().get_node_id()}


def test_both_nodes_of_a_cluster_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        tasks = {str(n): {"n": n} for n in range(8)}
        rows = run_tasks(where, tasks, backend="ray", journal=tmp_path / "rows.jsonl")
        assert [row["square"] for row in rows.values()] == [n**2 for n in range(8)]
        assert len({row["node"] for row in rows.values()}) == 2
    finally:
        cluster.shutdown()
