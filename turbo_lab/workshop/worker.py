"""Runs a submission's cells and calls its answers. Nothing here is trusted by the grader.

The process holds no expected result: ``check`` only keeps the answer it is given, and the grader
asks for results of single calls. Whoever changes this code, ``check`` or the printed text changes
nothing that the grader looks at.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turbo_lab.workshop.codec import EncodingError, decode, encode

TEXT_CHARACTERS = 300


class Worker:
    """One submission: its cells run in order, then its answers are called one by one."""

    def __init__(self, read: io.TextIOBase, send: Callable[[dict[str, Any]], None]) -> None:
        self.read, self.send = read, send
        self.answers: dict[str, Any] = {}
        self.errors: dict[int, str] = {}
        self.folder = Path.cwd()

    def keep(self, exercise_id: str, answer: Any = ...) -> None:
        """Stand-in for ``check`` and ``require``: the answer is judged elsewhere."""
        self.answers[str(exercise_id)] = answer
        print(f"{exercise_id}: handed in")

    def serve(self) -> None:
        """Answer requests, one line each, until the grader closes the pipe."""
        for line in self.read:
            request = json.loads(line)
            reply = getattr(self, f"do_{request['do']}")(request)
            self.send({"n": request["n"], **reply})

    def do_run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the cells that are not skipped; say which answers there are."""
        shell = _shell(self.keep)
        for number, source in enumerate(request["cells"]):
            if number in request["skip"]:
                continue
            self.send({"cell": number})
            self._go_home()
            if (error := _run_cell(shell, source)) is not None:
                self.errors[number] = error
        return {"errors": self.errors, "answers": {k: _kind(a) for k, a in self.answers.items()}}

    def do_value(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer itself, for an exercise that asks for a value."""
        return _encoded(self.answers[request["id"]])

    def do_call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call one answer. The arguments go back too: an answer may change them."""
        args = decode(request["args"])
        try:
            result = self.answers[request["id"]](*args)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return {"raised": _told(error)}
        reply = _encoded(result)
        with contextlib.suppress(EncodingError):
            reply["args"] = encode(args)
        return reply

    def _go_home(self) -> None:
        """A cell may have removed or left the folder it runs in."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            os.chdir(self.folder)


def _encoded(value: Any) -> dict[str, Any]:
    try:
        return {"value": encode(value)}
    except Exception as error:  # a value may fail at anything
        return {"odd": _told(error)[1]}


def _kind(answer: Any) -> dict[str, Any]:
    name = getattr(answer, "__name__", "answer")
    return {"callable": callable(answer), "name": str(name)[:60]}


def _told(error: BaseException) -> list[str]:
    try:
        text = str(error)
    except Exception:  # an error may fail at its own text
        text = ""
    return [type(error).__name__, text[:TEXT_CHARACTERS]]


def _shell(keep: Callable[..., None]) -> Any:
    """An interactive shell as notebooks have it, without history, with our ``check``."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    from turbo_lab.course import exercises

    exercises.check = keep
    exercises.require = keep
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    return InteractiveShell.instance(config=config)


def _run_cell(shell: Any, source: str) -> str | None:
    """Run one cell: None, or what it raised in one line."""
    try:
        done = shell.run_cell(source, store_history=False)
        error = done.error_before_exec or done.error_in_exec
    except (Exception, SystemExit, KeyboardInterrupt) as raised:  # also the shell's own
        error = raised
    return None if error is None else ": ".join(part for part in _told(error) if part)


def main() -> None:
    """``python -m turbo_lab.workshop.worker READ_FD WRITE_FD``."""
    requests = os.fdopen(int(sys.argv[1]), "r", encoding="utf-8")
    replies = os.fdopen(int(sys.argv[2]), "w", encoding="utf-8")
    mine = os.getpid()

    def send(message: dict[str, Any]) -> None:
        while os.getpid() != mine:  # a copy that a cell's fork left: silent, counted, ended later
            signal.pause()
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    Worker(requests, send).serve()


if __name__ == "__main__":
    main()
