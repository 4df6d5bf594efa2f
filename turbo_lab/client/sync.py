"""Run a coroutine from plain code, in a script and in Jupyter (where a loop already runs)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from turbo_lab.core import precise_loop

T = TypeVar("T")


def run_sync(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``start()`` to its end and return its result.

    Where this thread already has a running loop (Jupyter) it runs in a thread with its own loop.
    An interrupt (Ctrl-C, the stop button) cancels it, waits for its clean-up and is raised again.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return precise_loop.run(start)
    return _run_in_thread(start)


def _run_in_thread(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    result: Future[T] = Future()
    loop_ready = threading.Event()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        loop_ready.set()
        return await start()

    def work() -> None:
        try:
            result.set_result(precise_loop.run(main))
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=work, name="turbo-lab-client", daemon=True)
    thread.start()
    try:
        return result.result()
    except KeyboardInterrupt:
        loop_ready.wait(timeout=1)
        for loop, task in running:
            loop.call_soon_threadsafe(task.cancel)
        thread.join(timeout=5)
        raise
