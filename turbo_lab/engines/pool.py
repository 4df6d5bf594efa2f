"""Running servers that notebooks share: equal arguments, one start.

Each server of a pool lies in a folder of its own with its state, log and leases. A server lives as
long as a process holds a lease on it (a kernel that uses it, or the run that opened the session)
and ``grace_s`` longer, so that a learner can close one notebook and open the next.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from turbo_lab.core import host
from turbo_lab.core.errors import EngineError
from turbo_lab.core.units import GiB
from turbo_lab.engines import guardian, vllm_cli
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.vllm_server import VllmServer

POOL_VARIABLE = "TURBO_LAB_POOL_DIR"
GRACE_BY_HAND_S = 600.0
MAX_IDLE_SERVERS = 1  # beside the one about to start: two models fit into a laptop's memory
# Free memory wanted for a start on a CPU beside others. With the bundled model 1.5 GiB were seen in
# the two processes in front, and 1.2 to 1.5 GiB beside the pool in that of each rank.
FRONT_BYTES, RANK_BYTES = 3 * GiB // 2, 3 * GiB // 2


class ServerPool:
    """Servers under one folder. ``grace_s``: how long a server outlives its last lease."""

    def __init__(self, folder: Path, *, grace_s: float = GRACE_BY_HAND_S) -> None:
        self.folder, self.grace_s = folder, grace_s

    @property
    def session_leases(self) -> Path:
        """Leases that hold every server of this pool."""
        return self.folder / "session"

    def acquire(self, args: VllmArgs) -> VllmServer:
        """A ready server with these arguments: a running one, else a new one (30-45 s on CPU).

        The lease is this process: the server stays while the process lives. ``load_s`` of the
        result is the load time measured when the server was started; None where the call that
        started it was interrupted and nobody saw when it was ready. Raises EngineError.
        """
        from filelock import FileLock

        entry = self.folder / self._key(args)
        try:
            entry.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _refused(entry, error) from error
        with FileLock(entry / "lock"):
            _note_use(entry)
            server = self._running(entry, args)
            if server is None:
                self._make_room(entry, may_idle=0 if args.device == "gpu" else MAX_IDLE_SERVERS)
                server = self._start(entry, args)
            else:
                guardian.add_lease(entry / "leases")
            if server.load_s is None:
                self._wait(entry, server)
        return server

    def _start(self, entry: Path, args: VllmArgs) -> VllmServer:
        server = VllmServer(
            args, folder=entry, leases=(self.session_leases,), grace_s=self.grace_s
        ).start()
        try:
            self._write_state(entry, server)
        except OSError as error:  # nobody could find this server again
            server.stop()
            raise _refused(entry, error) from error
        return server

    def _wait(self, entry: Path, server: VllmServer) -> None:
        """Wait until it is ready; its load time is known only where the end of it was seen."""
        seen = not server.is_ready() and server.process.started_s > 0
        server.wait_ready()
        if not seen:
            server.load_s = None
        with contextlib.suppress(OSError):  # a full disk: whoever comes next asks it again
            self._write_state(entry, server)

    def holds(self, args: VllmArgs) -> bool:
        """Whether a server with these arguments runs in this pool."""
        return self._running(self.folder / self._key(args), args) is not None

    def servers(self) -> list[dict]:
        """State of every server that runs now: folder, port, load time, arguments."""
        found = []
        for path in sorted(self.folder.glob("*/state.json")):
            state = self._read_state(path.parent)
            if (
                state
                and guardian.process_token(int(state["guard"].split("-")[0])) == state["guard"]
            ):
                found.append({"folder": str(path.parent), **state})
        return found

    def stop_all(self) -> int:
        """End every server of this pool; returns how many there were."""
        states = self.servers()
        for state in states:
            self._stop(state)
        return len(states)

    def _key(self, args: VllmArgs) -> str:
        version = f"{vllm_cli.vllm_version()}|{os.environ.get('CUDA_VISIBLE_DEVICES')}"
        return f"{args.digest()}-{hashlib.sha256(version.encode()).hexdigest()[:4]}"

    def _running(self, entry: Path, args: VllmArgs) -> VllmServer | None:
        state = self._read_state(entry)
        if not state:
            return None
        server = VllmServer(args, folder=entry)
        server.port, server.load_s = state["port"], state["load_s"]
        server.process.guard_token = state["guard"]
        server.process.started_s = state.get("started_s", 0.0)
        return server if server.alive() else None

    def _make_room(self, keep: Path, *, may_idle: int = MAX_IDLE_SERVERS) -> None:
        """End servers that only the session or the grace period keeps: the one that was asked for
        least often first (the course's default is used by most notebooks), of equals the oldest.
        """
        idle = [
            s
            for s in self.servers()
            if Path(s["folder"]) != keep
            and not guardian.has_living_lease([Path(s["folder"]) / "leases"])
        ]
        idle.sort(key=lambda s: _worth(Path(s["folder"])))
        for state in idle[: max(0, len(idle) - may_idle)]:
            self._stop_idle(state)

    def _stop_idle(self, state: dict) -> None:
        """End it unless another process is just taking it."""
        from filelock import FileLock, Timeout

        folder = Path(state["folder"])
        with contextlib.suppress(Timeout), FileLock(folder / "lock", timeout=0):
            if not guardian.has_living_lease([folder / "leases"]):
                self._stop(state)

    @staticmethod
    def _stop(state: dict) -> None:
        from turbo_lab.engines.base import GuardedProcess

        GuardedProcess([], Path(state["folder"]), {}, guard_token=state["guard"]).stop()
        (Path(state["folder"]) / "state.json").unlink(missing_ok=True)

    @staticmethod
    def _read_state(entry: Path) -> dict | None:
        """What is written there; None for no file, a damaged one or a server that never was."""
        try:
            state = json.loads((entry / "state.json").read_text())
            int(state["guard"].split("-")[0]), int(state["port"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return state

    @staticmethod
    def _write_state(entry: Path, server: VllmServer) -> None:
        partial = entry / "state.part"
        partial.write_text(
            json.dumps(
                {
                    "port": server.port,
                    "guard": server.process.guard_token,
                    "started_s": server.process.started_s,
                    "load_s": server.load_s,
                    "model": server.args.model,
                    "dtype": server.args.dtype,
                }
            )
        )
        partial.replace(entry / "state.json")


def _refused(entry: Path, error: OSError) -> EngineError:
    return EngineError(
        f"cannot write to {entry}: {error.strerror or error}. Free some space or set "
        "TURBO_LAB_CACHE to another folder."
    )


def _note_use(entry: Path) -> None:
    with contextlib.suppress(OSError), (entry / "uses").open("a") as uses:  # a full disk: no count
        uses.write(".")


def _worth(entry: Path) -> tuple[int, float]:
    """How often it was asked for, and when it started; 0 for what cannot be read (any more)."""
    found: list[float] = []
    for name, kind in (("uses", "st_size"), ("state.json", "st_mtime")):
        try:
            found.append(getattr((entry / name).stat(), kind))
        except OSError:
            found.append(0)
    return int(found[0]), found[1]


def current_pool() -> ServerPool:
    """The pool of the run this process belongs to, else the learner's own in the cache folder."""
    if folder := os.environ.get(POOL_VARIABLE):
        return ServerPool(Path(folder), grace_s=0.0)  # the run's own lease keeps its servers
    return ServerPool(host.cache_folder() / "pool")


def shared_server(args: VllmArgs) -> VllmServer:
    """A ready server with these arguments from the current pool (see ``ServerPool.acquire``)."""
    return current_pool().acquire(args)


def start_together(*wanted: VllmArgs) -> None:
    """Start servers side by side, for two starts at once take little longer than one.

    ``shared_server`` then finds each of them running. Where free memory does not hold all that are
    still missing, none is started, and each starts when it is asked for. On a GPU they start one
    after the other: each counts the memory that the others take. One that does not start is left
    to ``shared_server``, which tells why.
    """
    pool = current_pool()
    missing = [args for args in wanted if not pool.holds(args)]
    on_gpu = any(args.device == "gpu" for args in wanted)
    if not on_gpu and not has_room(missing):
        return

    def start(args: VllmArgs) -> None:
        with contextlib.suppress(EngineError):
            pool.acquire(args)

    with ThreadPoolExecutor(max_workers=1 if on_gpu else max(1, len(wanted))) as starters:
        list(starters.map(start, wanted))


def room_bytes(wanted: Iterable[VllmArgs]) -> int:
    """Free memory for these servers of the bundled model on a CPU: processes and pools."""
    return sum(
        FRONT_BYTES + args.tensor_parallel_size * (RANK_BYTES + int((args.kv_cache_gib or 1) * GiB))
        for args in wanted
    )


def has_room(wanted: Iterable[VllmArgs]) -> bool:
    """Whether this machine's free memory holds all of these servers beside what runs now."""
    return room_bytes(wanted) <= _free_bytes()


def _free_bytes() -> int:
    import psutil

    return psutil.virtual_memory().available


@contextlib.contextmanager
def pool_session(folder: Path) -> Iterator[ServerPool]:
    """One pool for this process and its children; all its servers end with the block."""
    pool = ServerPool(folder, grace_s=0.0)
    lease = guardian.add_lease(pool.session_leases)
    before = os.environ.get(POOL_VARIABLE)
    os.environ[POOL_VARIABLE] = str(folder)
    try:
        yield pool
    finally:
        lease.unlink(missing_ok=True)
        if before is None:
            os.environ.pop(POOL_VARIABLE, None)
        else:
            os.environ[POOL_VARIABLE] = before
        pool.stop_all()
