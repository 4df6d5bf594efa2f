"""One rank: joins the others, runs the work, leaves its result or its traceback in a file.

``launch`` starts it with ``--folder``. Under torchrun, on one machine or on several, the same
module runs the same work and rank 0 prints every rank's result as JSON:
``torchrun --nproc-per-node 2 -m turbo_lab.parallel.worker MODULE:FUNCTION --arguments '{}'``
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import importlib.util
import json
import os
import pickle
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import UsageError

TASK = "task.pickle"


def load_work(name: str, *, file: str | None = None) -> Callable[..., Any]:
    """The function ``MODULE:FUNCTION``; ``file`` when the module is a file that no path leads to.

    Raises UsageError naming what is missing.
    """
    module_name, _, function = name.partition(":")
    if not function:
        raise UsageError(f"the work is {name!r}; needed: MODULE:FUNCTION")
    try:
        if file:
            spec = importlib.util.spec_from_file_location("turbo_lab_rank_work", file)
            module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
            sys.modules[spec.name] = module  # type: ignore[union-attr]
            spec.loader.exec_module(module)  # type: ignore[union-attr]
        else:
            module = importlib.import_module(module_name)
        return getattr(module, function)
    except (ModuleNotFoundError, AttributeError, FileNotFoundError) as error:
        raise UsageError(f"cannot find the work {name!r}: {error}") from error


def run_rank(folder: Path) -> int:
    """Run the task of ``folder`` as the rank that the environment names. Returns the exit code."""
    rank = int(os.environ["RANK"])
    _watch_parent(folder)
    _dump_stack_on_request(folder / f"rank-{rank}.stack")
    try:
        task = pickle.loads((folder / TASK).read_bytes())
        work = load_work(task["work"], file=task["file"])
        result = _joined(work, task["arguments"], task["connect"])
        partial = folder / f"rank-{rank}.part"
        partial.write_bytes(pickle.dumps(result))
        partial.replace(folder / f"rank-{rank}.result")
        return 0
    except BaseException as error:
        report = {
            "time_s": time.time(),
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
        }
        (folder / f"rank-{rank}.error").write_text(json.dumps(report))
        return 1


def _joined(work: Callable[..., Any], arguments: dict, options: dict) -> dict[str, Any]:
    import torch

    from turbo_lab.parallel.rendezvous import connect

    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    comm = connect(**options)
    start_s = time.perf_counter()
    value = work(comm, **arguments)
    facts = {
        "value": value,
        "work_s": time.perf_counter() - start_s,
        "backend": comm.backend,
        "device": str(comm.device),
        "threads": torch.get_num_threads(),
    }
    comm.close()
    return facts


def _watch_parent(folder: Path) -> None:
    """End our group at once when the parent is gone: it alone holds our input's other end.

    Then nobody reads ``folder`` any more, so it goes too.
    """

    def watch() -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdin.buffer.read()
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)  # also from inside a collective, and with our children

    threading.Thread(target=watch, daemon=True).start()


def _dump_stack_on_request(path: Path) -> None:
    """SIGUSR1 writes where this rank stands, also while it waits inside a collective."""
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, file=path.open("w"), all_threads=False)


def _run_under_torchrun(name: str, arguments: dict[str, Any]) -> None:
    from turbo_lab.parallel.rendezvous import connect

    work = load_work(name)
    comm = connect()
    results = comm.gather_objects(work(comm, **arguments))
    if comm.rank == 0:
        facts = {"ranks": comm.size, "backend": comm.backend, "results": results}
        print(json.dumps(facts, default=lambda array: array.tolist()), flush=True)
    comm.close()


def main() -> None:
    """Command line of a rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", nargs="?", help="MODULE:FUNCTION, called with the group of ranks")
    parser.add_argument("--arguments", default="{}", help="its keyword arguments as JSON")
    parser.add_argument("--folder", type=Path, help="used by launch")
    options = parser.parse_args()
    if options.folder is None:
        if options.work is None:
            parser.error("the work is missing: MODULE:FUNCTION")
        _run_under_torchrun(options.work, json.loads(options.arguments))
        return
    code = run_rank(options.folder)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the files are written; tearing torch down would only take time


if __name__ == "__main__":
    main()
