"""A sweep on a Ray cluster of two local nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.sim.tasks import run_tasks

ray = pytest.importorskip("ray", reason="needs the cpu environment")
pytestmark = pytest.mark.alone


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster of two nodes with one core each; skipped where it does not come up in time."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    cluster = Cluster()
    try:
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=1)
        except Exception as error:
            pytest.skip(f"a Ray cluster did not start here: {error}")
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster.address
    finally:
        cluster.shutdown()


def meet(task: dict[str, Any]) -> dict[str, Any]:
    """The square of a number, once tasks on two nodes have met."""
    folder = Path(task["folder"])
    (folder / ray.get_runtime_context().get_node_id()).touch()
    until = time.monotonic() + 120
    while len(list(folder.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    return {"square": task["n"] ** 2, "nodes": len(list(folder.iterdir()))}


def test_both_nodes_of_a_cluster_work(address: str, tmp_path: Path) -> None:
    folder = tmp_path / "nodes"
    folder.mkdir()
    tasks = {str(n): {"n": n, "folder": str(folder)} for n in range(6)}
    rows = run_tasks(meet, tasks, backend="ray", journal=tmp_path / "rows.jsonl")
    assert [row["square"] for row in rows.values()] == [0, 1, 4, 9, 16, 25]
    assert {row["nodes"] for row in rows.values()} == {2}
