"""What a connector did, one JSON line each: kept, sent, fetched, refused, and why."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Note = Callable[..., None]


def journal(path: Path | str | None) -> Note:
    """A function that appends ``event`` and its facts to ``path``; without a path it does nothing.

    ``t_s`` is on ``time.perf_counter``, which all processes of a Linux machine share. A journal
    that cannot be written never stops a transfer.
    """

    def note(event: str, **facts: Any) -> None:
        if path is None:
            return
        line = json.dumps({"event": event, "t_s": time.perf_counter(), **facts})
        with contextlib.suppress(OSError), Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    return note


def read_journal(path: Path | str) -> list[dict[str, Any]]:
    """All whole lines so far; an empty list where there is no file yet."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
