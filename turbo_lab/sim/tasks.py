"""Many independent simulations: on this machine's cores (joblib) or a Ray cluster, resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import (
    MissingDependencyError,
    RecordError,
    UsageError,
    did_you_mean,
)
from turbo_lab.core.host import cores_granted
from turbo_lab.records.digest import digest_of
from turbo_lab.records.journal import append_row, read_rows

Row = dict[str, Any]
BACKENDS = ("local", "ray")


def run_tasks(
    function: Callable[[Any], Row],
    tasks: Mapping[str, Any],
    *,
    journal: str | Path | None = None,
    about: Mapping[str, Any] | None = None,
    backend: str = "local",
    workers: int | None = None,
) -> dict[str, Row]:
    """``function`` of every task, by the task's key, in the order of the tasks.

    Args:
        function: a module's function; it and the tasks travel to other processes.
        tasks: by a key that names the task in the journal.
        journal: file of finished rows; those that it holds are not computed again.
        about: what all tasks have in common; a journal about something else is refused.
        backend: ``local`` (processes on this machine) or ``ray`` (the cluster of RAY_ADDRESS, else
            a local one).
        workers: local processes (default: all cores, at most one per task; 1 stays in this one).

    Raises:
        UsageError: an unknown backend, or a journal of another sweep.
        MissingDependencyError: joblib or ray is not installed.
    """
    if backend not in BACKENDS:
        raise UsageError(f"backend {backend!r}." + did_you_mean(backend, [*BACKENDS]))
    done = _resumed(journal, dict(about or {}))
    missing = {key: task for key, task in tasks.items() if key not in done}
    how = _on_ray if backend == "ray" else _on_cores
    for key, row in how(function, missing, workers):
        done[key] = row
        if journal is not None:
            append_row(journal, {"kind": "row", "key": key, "row": row})
    return {key: done[key] for key in tasks}


def _resumed(journal: str | Path | None, about: Row) -> dict[str, Row]:
    """Finished rows of a journal; begins it where there is none."""
    if journal is None:
        return {}
    rows = read_rows(journal)
    mark = digest_of(about)
    if not rows:
        append_row(journal, {"kind": "header", "digest": mark, "about": about})
        return {}
    if rows[0].get("kind") != "header":
        raise RecordError(f"{journal} is no journal of a sweep: its first line is missing.")
    if rows[0].get("digest") != mark:
        changed = sorted(k for k in about if rows[0].get("about", {}).get(k) != about[k])
        raise UsageError(
            f"{journal} holds a sweep with another {', '.join(changed) or 'set of options'}. "
            "Give another --out, or the same options to continue it"
        )
    return {row["key"]: row["row"] for row in rows[1:] if row.get("kind") == "row"}


def _on_cores(
    function: Callable[[Any], Row], tasks: Mapping[str, Any], workers: int | None
) -> Iterator[tuple[str, Row]]:
    count = min(workers or cores_granted(), len(tasks))
    if count <= 1:
        yield from (_keyed(function, key, task) for key, task in tasks.items())
        return
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise MissingDependencyError("joblib", needed_for="a sweep on several cores") from None
    work = (delayed(_keyed)(function, key, task) for key, task in tasks.items())
    yield from Parallel(n_jobs=count, return_as="generator_unordered")(work)


def _keyed(function: Callable[[Any], Row], key: str, task: Any) -> tuple[str, Row]:
    return key, function(task)


def _on_ray(
    function: Callable[[Any], Row], tasks: Mapping[str, Any], workers: int | None
) -> Iterator[tuple[str, Row]]:
    """As Ray's own tasks, so that every row is kept as soon as it is there."""
    try:
        import ray
    except ImportError:
        raise MissingDependencyError("ray", needed_for="--backend ray") from None
    mine = not ray.is_initialized()
    if mine:
        address = os.environ.get("RAY_ADDRESS")
        try:
            ray.init(address=address, log_to_driver=False)
        except ConnectionError as error:
            raise UsageError(f"no Ray cluster answers at RAY_ADDRESS={address}: {error}") from error
    try:
        remote = ray.remote(function)
        waiting = {remote.remote(task): key for key, task in tasks.items()}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            yield waiting.pop(ready[0]), ray.get(ready[0])
    finally:
        if mine:
            ray.shutdown()


def keys_of(options: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of the options' values, the last option varying fastest."""
    out: list[dict[str, Any]] = [{}]
    for name, values in options.items():
        out = [{**row, name: value} for row in out for value in values]
    return out
