"""A learner's progress: one small JSON file on this machine, never needed, never in the way."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from turbo_lab.core.errors import RecordError
from turbo_lab.core.host import cache_folder
from turbo_lab.records.store import write_text_atomically

PROGRESS_VARIABLE = "TURBO_LAB_PROGRESS"
# A later state replaces an earlier one only if it ranks at least as high.
RANKS = ("not attempted", "wrong", "revealed", "correct")


def path() -> Path:
    """``TURBO_LAB_PROGRESS``, else ``progress.json`` in the cache folder."""
    override = os.environ.get(PROGRESS_VARIABLE)
    return Path(override).expanduser() if override else cache_folder() / "progress.json"


def read() -> dict[str, str]:
    """Exercise id to its best state; empty where there is no readable file."""
    try:
        data = json.loads(path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {str(key): state for key, state in data.items() if state in RANKS}


def note(exercise_id: str, state: str) -> None:
    """Keep ``state`` if it is no step back. A file that cannot be written is no error."""
    states = read()
    if RANKS.index(state) <= RANKS.index(states.get(exercise_id, RANKS[0])):
        return
    states[exercise_id] = state
    with contextlib.suppress(RecordError, OSError):
        write_text_atomically(json.dumps(states, indent=1, sort_keys=True) + "\n", path())
