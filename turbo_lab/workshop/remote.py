"""The grader's end of a submission: a caged process that is asked, watched and ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import units
from turbo_lab.workshop import cage
from turbo_lab.workshop.isolation import Isolation
from turbo_lab.workshop.limits import Limits

POLL_S = 0.1
END_TIMEOUT_S = 5.0
START_S = 60.0  # for the interpreter and the shell, before the first cell
MAX_LINE_BYTES = units.MiB
KEPT_OUTPUT_BYTES = 64 * units.KiB
SIGXCPU_CODE = 152
# The kernel counts all threads of the user. So many more may come while a submission runs, without
# harm to it; and the watch, not the kernel, meets who starts a few processes too many.
OTHER_TASKS = 512


class LostError(BaseException):
    """The submission's process is no longer to be asked. No ``except Exception`` hides this."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Place:
    """Folders of one submission: ``work`` is its own, ``stage`` holds the package it imports."""

    work: Path
    stage: Path
    hide: tuple[Path, ...] = ()


class Remote:
    """A running submission. Use as a context manager: leaving it ends every process of it."""

    def __init__(
        self, place: Place, *, isolation: Isolation, limits: Limits, deadline_s: float
    ) -> None:
        self.place, self.isolation, self.limits = place, isolation, limits
        self.deadline_s = deadline_s  # on time.monotonic()'s clock, for the whole notebook
        self.loss: LostError | None = None
        self.cell: int | None = None
        self.output = bytearray()
        self._number, self._buffer, self._printed = 0, b"", 0
        self._over = threading.Event()

    def __enter__(self) -> Remote:
        """Start the process and its watch."""
        there, self._send_fd = os.pipe()
        self._read_fd, back = os.pipe()
        life, self._life_fd = os.pipe()
        try:
            self.process = subprocess.Popen(
                [
                    *self.isolation.prefix,
                    sys.executable,
                    "-I",
                    cage.__file__,
                    self._plan(there, back, life),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(there, back, life),
                start_new_session=True,
                cwd="/",
            )
        finally:
            for fd in (there, back, life):
                os.close(fd)
        self._threads = [
            threading.Thread(target=t, daemon=True) for t in (self._watch, self._drain)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._over.set()
        self._end()
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)
        for fd in (self._send_fd, self._read_fd, self._life_fd):
            os.close(fd)

    @property
    def alive(self) -> bool:
        """True while the process can be asked."""
        return self.loss is None and self.process.poll() is None

    def ask(self, do: str, **content: Any) -> dict[str, Any]:
        """Send one request and wait for its reply. Raises LostError when there will be none."""
        self._number += 1
        text = json.dumps({"do": do, "n": self._number, **content}) + "\n"
        try:
            self._write(text.encode())
            return self._reply()
        except BrokenPipeError:
            raise self._ended() from None

    def lose(self, status: str, reason: str) -> LostError:
        """End the submission; the first reason is kept."""
        if self.loss is None:
            self.loss = LostError(status, reason)
        self._end()
        return self.loss

    def _plan(self, there: int, back: int, life: int) -> str:
        python = [
            sys.executable,
            "-P",
            "-s",
            "-m",
            "turbo_lab.workshop.worker",
            str(there),
            str(back),
        ]
        plan = {
            "work": str(self.place.work),
            "hide": [str(folder) for folder in self.place.hide],
            "mounts": self.isolation.files is None,
            "limits": self.limits.to_json(),
            "processes": self.limits.processes + OTHER_TASKS + _threads_of_this_user(),
            "fds": [there, back],
            "life": life,
            "command": python,
            "environment": environment(self.place),
        }
        return json.dumps(plan)

    def _write(self, data: bytes) -> None:
        """A worker that reads nothing must not block the grader."""
        os.set_blocking(self._send_fd, False)
        step_end_s = time.monotonic() + START_S
        while data:
            self._wait([], [self._send_fd], step_end_s)
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(self._send_fd, data) :]

    def _reply(self) -> dict[str, Any]:
        allowed_s = self.limits.step_s if self._number > 1 else max(START_S, self.limits.step_s)
        step_end_s = time.monotonic() + allowed_s
        while True:
            while b"\n" not in self._buffer:
                self._wait([self._read_fd], [], step_end_s)
                if not (piece := os.read(self._read_fd, 65536)):
                    raise self._ended()
                self._buffer += piece
                if len(self._buffer) > MAX_LINE_BYTES:
                    raise self.lose("output", "an answer is larger than 1 MiB")
            line, self._buffer = self._buffer.split(b"\n", 1)
            message = self._parsed(line)
            if isinstance(message.get("cell"), int):
                self.cell, step_end_s = message["cell"], time.monotonic() + self.limits.step_s
            elif message.get("n") == self._number:
                return message

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise self.lose("crashed", "the process sent something that is no reply")
        return message

    def _wait(self, readers: list[int], writers: list[int], step_end_s: float) -> None:
        left_s = min(step_end_s, self.deadline_s) - time.monotonic()
        if left_s > 0 and any(select.select(readers, writers, [], left_s)):
            return
        if self.loss is not None:
            raise self.loss
        if self.deadline_s <= step_end_s:
            raise self.lose("timeout", f"the notebook's {self.limits.wall_s:g} s are used up")
        raise self.lose("timeout", f"no end after {self.limits.step_s:g} s")

    def _ended(self) -> LostError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_TIMEOUT_S)
        code = self.process.poll()
        if code in (SIGXCPU_CODE, 128 - SIGXCPU_CODE):
            return self.lose("timeout", f"{self.limits.cpu_s:g} s of processor time are used up")
        return self.lose("crashed", f"its process ended (exit code {code})")

    def _watch(self) -> None:
        """Count processes and memory until the end."""
        while not self._over.wait(POLL_S) and self.process.poll() is None:
            count, resident_bytes = _usage(self.process.pid)
            if count > self.limits.processes:
                self.lose("processes", f"more than {self.limits.processes} processes at once")
            if resident_bytes > self.limits.memory_bytes:
                allowed = units.format_bytes(self.limits.memory_bytes)
                self.lose("memory", f"more than {allowed} in all processes together")

    def _drain(self) -> None:
        """Read what is printed, so that nothing blocks; keep the first part of it."""
        stream = self.process.stdout
        while piece := os.read(stream.fileno(), 65536):
            self._printed += len(piece)
            self.output += piece[: max(0, KEPT_OUTPUT_BYTES - len(self.output))]
            if self._printed > self.limits.output_bytes and self.loss is None:
                allowed = units.format_bytes(self.limits.output_bytes)
                self.lose("output", f"more than {allowed} printed")
        stream.close()

    def _end(self) -> None:
        """Kill the namespace's first process; where there is none the cage kills one by one."""
        if self.process.poll() is None and "--pid" not in self.isolation.prefix:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_TIMEOUT_S)
        if self.process.poll() is None:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_TIMEOUT_S)


def environment(place: Place) -> dict[str, str]:
    """Environment of a submission: nothing of the instructor's, one thread, recorded results."""
    single = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": str(place.work / "home"),
        "TMPDIR": str(place.work / "tmp"),
        "TURBO_LAB_CACHE": str(place.work / "home" / "cache"),
        "TURBO_LAB_RUN_DIR": str(place.work / "home" / "runs"),
        "TURBO_LAB_MODE": "replay",
        "MPLBACKEND": "agg",
        "PYTHONPATH": str(place.stage),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **dict.fromkeys(single, "1"),
    }


def _usage(pid: int) -> tuple[int, int]:
    """Processes below ``pid`` and their resident memory in bytes."""
    import psutil

    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return 0, 0
    total = 0
    for process in below:
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return len(below), total


def _threads_of_this_user() -> int:
    """Threads of this user now: the kernel's limit of processes counts them all."""
    import psutil

    total = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid():
                total += process.num_threads()
    return total


def caged(place: Place, *, isolation: Isolation, limits: Limits) -> Callable[[float], Remote]:
    """A function that starts the submission anew: ``start(deadline_s)``."""
    return lambda deadline_s: Remote(
        place, isolation=isolation, limits=limits, deadline_s=deadline_s
    )
