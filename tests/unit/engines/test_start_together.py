"""Servers that start side by side, one after the other on a GPU, and a card divided among them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from turbo_lab.core import host
from turbo_lab.core.config import Dials
from turbo_lab.core.errors import EngineError
from turbo_lab.core.units import GiB
from turbo_lab.engines import pool
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.pool import ServerPool, pool_session, room_bytes, start_together

PATIENCE_S = 0.5  # how long a start waits for two others to run beside it


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """``acquire`` takes a moment, notes how many run at once, and fails for a model ``bad``."""
    seen = SimpleNamespace(done=[], most=0, now=0, lock=threading.Lock())

    def acquire(self: ServerPool, args: VllmArgs) -> None:
        with seen.lock:
            seen.now += 1
            seen.most = max(seen.most, seen.now)
        until = time.monotonic() + PATIENCE_S
        while seen.most < 3 and time.monotonic() < until:
            time.sleep(0.005)
        with seen.lock:
            seen.now -= 1
        if args.model == "bad":
            raise EngineError("no such model")
        seen.done.append(args.model)

    monkeypatch.setattr(ServerPool, "acquire", acquire)
    monkeypatch.setattr(ServerPool, "holds", lambda self, args: args.model in seen.done)
    monkeypatch.setattr(pool, "_free_bytes", lambda: 64 * GiB)
    monkeypatch.setenv(pool.POOL_VARIABLE, str(tmp_path))
    return seen


def test_side_by_side_and_one_failure_stops_nobody(starts: SimpleNamespace) -> None:
    start_together(*(VllmArgs.make(model=m) for m in ("a", "bad", "b")))
    assert sorted(starts.done) == ["a", "b"] and starts.most == 3


def test_without_memory_for_all_that_are_missing_none_is_started(
    starts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [VllmArgs.make(model=m) for m in "ab"]
    need = room_bytes(asked)
    assert need == 2 * room_bytes(asked[:1]) == 8 * GiB
    wide = VllmArgs.make(model="c", tensor_parallel_size=3, kv_cache_gib=2)
    assert room_bytes([wide]) == 12 * GiB
    monkeypatch.setattr(pool, "_free_bytes", lambda: need - 1)
    start_together(*asked)
    assert starts.done == []
    starts.done.append("a")  # one of them runs already
    start_together(*asked)
    assert sorted(starts.done) == ["a", "a", "b"]


def test_one_after_the_other_on_a_gpu(starts: SimpleNamespace) -> None:
    start_together(*(VllmArgs.make(model=m, device="gpu") for m in "abc"))
    assert starts.done == ["a", "b", "c"] and starts.most == 1


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
