"""Files that several processes may write: one at a time, and what the disk refuses is told."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from turbo_lab.core.errors import EngineError


@contextlib.contextmanager
def writing_alone(parent: Path, *, name: str, doing: str, room: str) -> Iterator[None]:
    """Hold the lock of ``name`` in ``parent``, which is made where it is missing.

    Raises EngineError with the next step for what the disk refuses inside: "cannot ``doing``", and
    to free about ``room`` where it is full.
    """
    from filelock import FileLock

    try:
        parent.mkdir(parents=True, exist_ok=True)
        with FileLock(parent / f".{name}.lock"):
            yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise EngineError(
            f"cannot {doing}: {error.strerror or error}. "
            + (f"Free about {room} there" if full else "Make that folder writable")
            + ", or set TURBO_LAB_CACHE to another folder."
        ) from error
