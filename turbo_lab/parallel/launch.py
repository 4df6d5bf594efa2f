"""Start n ranks, collect their results, and never leave one behind.

Each rank is a Python process in a process group of its own. The group ends with this process,
however that ends: the rank watches a pipe that only we hold. Needs torch in the ranks only.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_lab.core import host
from turbo_lab.core.errors import DistributedError, MissingDependencyError, UsageError
from turbo_lab.parallel.worker import TASK

if TYPE_CHECKING:
    from turbo_lab.network.hosts import Hosts

POLL_S = 0.02
LOG_TAIL_LINES = 12
_PLUMBING = re.compile(r"/torch/|/parallel/(comm|worker)\.py")
LOOPBACK = "127.0.0.1"
ADDRESS_VARIABLE = "TURBO_LAB_RANK_ADDRESS"


@dataclass(frozen=True)
class Place:
    """Where a rank runs: the address it listens on, what leads there, and its variables."""

    address: str = LOOPBACK
    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def on(cls, hosts: Hosts, host: int) -> Place:
        """Inside host ``host`` of ``turbo_lab.network.links.open_hosts``."""
        hosts.require(host)
        return cls(
            hosts.address(host), tuple(hosts.command(host, [])), dict(hosts.environment(host))
        )


@dataclass(frozen=True)
class Ranks:
    """What a run returned. ``results``, ``work_s`` and ``logs`` have one entry for each rank.

    ``work_s``: inside the work; ``wall_s``: with start and end of the processes.
    """

    results: tuple[Any, ...]
    work_s: tuple[float, ...]
    wall_s: float
    backend: str
    device: str
    threads_per_rank: int
    logs: tuple[str, ...]


def launch(
    work: Callable[..., Any] | str,
    *,
    ranks: int,
    arguments: Mapping[str, Any] | None = None,
    threads: int | None = None,
    deadline_s: float = 120.0,
    backend: str = "auto",
    place: Callable[[int], Place] | None = None,
) -> Ranks:
    """Run ``work(comm, **arguments)`` on every rank and return what each one returned.

    Args:
        work: a function at the top level of a module or file, or ``"module:function"``. Its
            first argument is the rank's :class:`~turbo_lab.parallel.comm.Comm`.
        ranks: number of processes.
        arguments: keyword arguments, picklable, the same for all ranks.
        threads: CPU threads of each rank; by default the machine's cores shared out, at least 1.
        deadline_s: seconds from the start to the last result.
        backend: ``auto`` (NCCL where each rank has a GPU, else gloo), ``gloo`` or ``nccl``.
        place: where each rank runs; by default on this machine, over loopback.

    Raises DistributedError naming the rank that failed first, with its traceback, or after the
    deadline, with the line at which each rank stood; UsageError for work that cannot be found.
    """
    if ranks < 1:
        raise UsageError(f"ranks is {ranks}; allowed: whole numbers from 1.")
    if not host.has_module("torch"):
        raise MissingDependencyError("torch", needed_for="running several ranks")
    name, file = _named(work)
    threads = threads or max(1, host.cores_granted() // ranks)
    with tempfile.TemporaryDirectory(prefix="turbo-lab-ranks-") as text:
        folder = Path(text)
        connect = {"backend": backend, "timeout_s": deadline_s, "store": str(folder / "store")}
        task = {"work": name, "file": file, "arguments": dict(arguments or {}), "connect": connect}
        (folder / TASK).write_bytes(_pickled(task))
        start_s = time.monotonic()
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(ranks):
                where = place(rank) if place else Place()
                processes.append(_start(folder, rank, ranks, threads, where))
            _wait(processes, folder, start_s, deadline_s)
        finally:
            _end(processes)
        return _collect(folder, ranks, time.monotonic() - start_s)


def _named(work: Callable[..., Any] | str) -> tuple[str, str | None]:
    """(``module:function``, file or None) of the work."""
    if isinstance(work, str):
        if ":" not in work:
            raise UsageError(f"the work is {work!r}; needed: MODULE:FUNCTION, or a function")
        return work, None
    if "." in work.__qualname__ or "<" in work.__qualname__:
        raise UsageError(
            f"{work.__qualname__} is not at the top level of a file, so a new process cannot "
            "find it. Move it there."
        )
    name = f"{work.__module__}:{work.__qualname__}"
    if work.__module__.startswith("turbo_lab."):
        return name, None
    try:
        file = inspect.getfile(work)
    except (TypeError, OSError):
        file = ""
    if not Path(file).is_file():
        raise UsageError(
            f"{work.__qualname__} was typed into a notebook or a shell, where a new process cannot "
            "find it. Put it into a .py file and import it."
        )
    return name, str(Path(file).resolve())


def _pickled(task: dict[str, Any]) -> bytes:
    try:
        return pickle.dumps(task)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UsageError(f"an argument cannot be sent to another process: {error}") from error


def _start(
    folder: Path, rank: int, ranks: int, threads: int, place: Place
) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        ADDRESS_VARIABLE: place.address,
        "PYTHONUNBUFFERED": "1",
        **place.environment,
    }
    worker = [sys.executable, "-m", "turbo_lab.parallel.worker", "--folder", str(folder)]
    with (folder / f"rank-{rank}.log").open("wb") as log:
        return subprocess.Popen(
            [*place.prefix, *worker],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def _wait(
    processes: list[subprocess.Popen[bytes]], folder: Path, start_s: float, deadline_s: float
) -> None:
    while True:
        codes = [process.poll() for process in processes]
        if any(codes):
            time.sleep(0.1)  # the others notice; their reports tell who was first
            raise DistributedError(_failure([p.poll() for p in processes], folder))
        if None not in codes:
            return
        if time.monotonic() - start_s > deadline_s:
            raise DistributedError(_too_slow(processes, folder, deadline_s))
        time.sleep(POLL_S)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """End what is left, children of ranks included, and reap it."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()  # type: ignore[union-attr]
        process.wait()


def _failure(codes: list[int | None], folder: Path) -> str:
    """The first rank to fail and why: one that died without a word, else the earliest report."""
    reports = {}
    for rank, code in enumerate(codes):
        if code:
            path = folder / f"rank-{rank}.error"
            reports[rank] = json.loads(path.read_text()) if path.exists() else None
    first = min(reports, key=lambda rank: (reports[rank] or {}).get("time_s", 0.0))
    report, code, n = reports[first], codes[first], len(codes)
    if report:
        text = f"rank {first} of {n} failed: {report['error']}\n{report['traceback'].rstrip()}"
    else:
        how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        text = f"rank {first} of {n} died: {how}. Its last lines:\n{_tail(folder, first)}"
    later = [f"rank {r}: {reports[r]['error'][:160]}" for r in reports if r != first and reports[r]]
    return text + ("\nThen failed " + "; ".join(later) if later else "")


def _too_slow(processes: list[subprocess.Popen[bytes]], folder: Path, deadline_s: float) -> str:
    """Which ranks were not done at the deadline, and the line where each stood."""
    waiting = [rank for rank, process in enumerate(processes) if process.poll() is None]
    for rank in waiting:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            processes[rank].send_signal(signal.SIGUSR1)
    time.sleep(0.3)
    lines = [
        f"not done after {deadline_s:g} s: "
        f"{', '.join(f'rank {rank}' for rank in waiting)} of {len(processes)}. "
        "Raise deadline_s, or look where they stand:"
    ]
    for rank in waiting:
        path = folder / f"rank-{rank}.stack"
        frames = [row.strip() for row in path.read_text().splitlines()] if path.exists() else []
        own = [row for row in frames if row.startswith("File") and not _PLUMBING.search(row)]
        lines.append(f"  rank {rank}: {own[0] if own else 'still starting'}")
    return "\n".join(lines)


def _tail(folder: Path, rank: int) -> str:
    text = (folder / f"rank-{rank}.log").read_text(errors="replace")
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:]) or "(it printed nothing)"


def _collect(folder: Path, ranks: int, wall_s: float) -> Ranks:
    paths = [folder / f"rank-{rank}.result" for rank in range(ranks)]
    for rank, path in enumerate(paths):
        if not path.exists():
            raise DistributedError(f"rank {rank} of {ranks} ended without a result (exit code 0)")
    facts = [pickle.loads(path.read_bytes()) for path in paths]
    return Ranks(
        results=tuple(fact["value"] for fact in facts),
        work_s=tuple(fact["work_s"] for fact in facts),
        wall_s=wall_s,
        backend=facts[0]["backend"],
        device=facts[0]["device"],
        threads_per_rank=facts[0]["threads"],
        logs=tuple((folder / f"rank-{r}.log").read_text(errors="replace") for r in range(ranks)),
    )
