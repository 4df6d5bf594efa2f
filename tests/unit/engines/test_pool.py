"""The pool's bookkeeping, with sleeping processes in the place of servers."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from turbo_lab.engines import guardian, pool
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.base import GuardedProcess
from turbo_lab.engines.pool import POOL_VARIABLE, ServerPool, current_pool, pool_session

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process groups as on Linux")


def sleeping(servers: ServerPool, name: str, *, held: bool) -> GuardedProcess:
    """A server of the pool; ``held``: this process has a lease on it, else only the session."""
    entry = servers.folder / name
    process = GuardedProcess(
        [sys.executable, "-c", "import time; time.sleep(600)"], entry, {},
        leases=(servers.session_leases,),
    )  # fmt: skip
    process.start()
    state = {"port": 1, "guard": process.guard_token, "load_s": 1.0, "model": name, "dtype": "x"}
    (entry / "state.json").write_text(json.dumps(state))
    if not held:
        (entry / "leases" / guardian.process_token(os.getpid())).unlink()
    time.sleep(0.02)  # so that the files' times tell their order
    return process


def test_a_session_keeps_its_servers_and_ends_them(tmp_path: Path) -> None:
    with pool_session(tmp_path / "pool") as servers:
        assert current_pool().folder == tmp_path / "pool"
        one = sleeping(servers, "a", held=False)
        time.sleep(3 * guardian.POLL_S)
        assert one.alive() and [s["model"] for s in servers.servers()] == ["a"]
    assert not one.alive() and servers.servers() == []
    assert POOL_VARIABLE not in os.environ


def test_room_is_made_by_the_oldest_idle_server(tmp_path: Path) -> None:
    with pool_session(tmp_path / "pool") as servers:
        made = {name: sleeping(servers, name, held=name == "held") for name in ("a", "held", "b")}
        servers._make_room(tmp_path / "pool" / "new")
        assert pool.MAX_IDLE_SERVERS == 1
        assert {n for n, p in made.items() if p.alive()} == {"held", "b"}


def test_a_server_that_many_ask_for_outlives_a_younger_one(tmp_path: Path) -> None:
    with pool_session(tmp_path / "pool") as servers:
        wanted, other = sleeping(servers, "a", held=False), sleeping(servers, "b", held=False)
        for name in ("a", "a", "b"):
            pool._note_use(servers.folder / name)
        servers._make_room(tmp_path / "pool" / "new")
        assert wanted.alive() and not other.alive()


def test_a_server_that_died_is_not_listed(tmp_path: Path) -> None:
    with pool_session(tmp_path / "pool") as servers:
        process = sleeping(servers, "a", held=True)
        process.stop()
        assert servers.servers() == []
        (servers.folder / "a" / "state.json").write_text("cut sho")
        assert servers.servers() == []


def test_by_hand_the_pool_lies_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURBO_LAB_CACHE", str(tmp_path))
    monkeypatch.delenv(POOL_VARIABLE, raising=False)
    assert current_pool().folder == tmp_path / "pool"
    assert current_pool().grace_s == pool.GRACE_BY_HAND_S


def test_an_idle_server_that_another_process_is_taking_is_left_alone(tmp_path: Path) -> None:
    with pool_session(tmp_path / "pool") as servers:
        taken, idle = sleeping(servers, "a", held=False), sleeping(servers, "b", held=False)
        with FileLock(servers.folder / "a" / "lock"):
            servers._make_room(tmp_path / "pool" / "new", may_idle=0)
        assert taken.alive() and not idle.alive()


@pytest.mark.parametrize("state", ["[1]", '{"port": 1}', '{"port": 1, "guard": null}', "null"])
def test_a_damaged_state_is_no_server(tmp_path: Path, state: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "state.json").write_text(state)
    assert ServerPool(tmp_path).servers() == []
    assert ServerPool(tmp_path).stop_all() == 0


class Loading:
    """A server that is being waited for; ``ready``: it was so before."""

    def __init__(self, *, ready: bool, started_s: float) -> None:
        self.ready, self.load_s, self.port = ready, None, 1
        self.process = GuardedProcess([], Path(), {}, guard_token="1-1", started_s=started_s)
        self.args = VllmArgs.make(model="m")

    def is_ready(self) -> bool:
        return self.ready

    def wait_ready(self) -> None:
        self.load_s = time.monotonic() - self.process.started_s


@pytest.mark.parametrize(
    ("ready", "started_s", "known"), [(False, 5.0, True), (True, 5.0, False), (False, 0.0, False)]
)
def test_a_load_time_that_nobody_saw_is_unknown(
    tmp_path: Path, ready: bool, started_s: float, known: bool
) -> None:
    """The call that started it was interrupted; hours later it is taken over."""
    server = Loading(ready=ready, started_s=started_s)
    ServerPool(tmp_path)._wait(tmp_path, server)  # type: ignore[arg-type]
    assert (server.load_s is not None) == known
    written = json.loads((tmp_path / "state.json").read_text())
    assert written["load_s"] == server.load_s and written["started_s"] == started_s
