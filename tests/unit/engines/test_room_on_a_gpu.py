"""Room on a GPU: no idle server beside a new one, and a card divided among several."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from turbo_lab.core import host
from turbo_lab.core.config import Dials
from turbo_lab.core.units import GiB
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.pool import pool_session


def test_a_gpu_server_leaves_no_idle_one_beside_it(tmp_path: Path) -> None:
    with pool_session(tmp_path) as servers:
        kept: list[dict] = []
        servers.servers = lambda: kept  # type: ignore[method-assign]
        for name in ("old", "new"):
            entry = tmp_path / name
            (entry / "leases").mkdir(parents=True)
            (entry / "state.json").write_text("{}")
            kept.append({"folder": str(entry), "guard": "0-0"})
        ended: list[str] = []
        servers._stop = lambda state: ended.append(Path(state["folder"]).name)  # type: ignore[method-assign]
        servers._make_room(tmp_path / "next")
        assert len(ended) == 1
        ended.clear()
        servers._make_room(tmp_path / "next", may_idle=0)
        assert sorted(ended) == ["new", "old"]
        kept.clear()


def test_a_card_is_divided_among_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "gpus", lambda: [SimpleNamespace(memory_bytes=80 * GiB)])
    dials = Dials("gpu", "quick", "a test")
    alone, divided = default_args(dials), default_args(dials, servers=3)
    assert alone.gpu_memory_utilization is None and alone.model == "Qwen/Qwen3-8B"
    assert divided.gpu_memory_utilization == pytest.approx(0.3)
    assert divided.model == "Qwen/Qwen3-1.7B", "what fits on a third of the card"
