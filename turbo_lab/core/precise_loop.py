"""An asyncio event loop whose timers keep to microseconds.

On Linux the standard loop waits in ``epoll``, whose time-out is in whole milliseconds, rounded
up: a timer fires up to 1 ms late. That is as large as what a load client wants to measure. Waiting
on the epoll descriptor with ``select``, whose time-out is finer, removes the rounding for one more
system call per turn. Other systems keep their own loop.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
SELECT_LIMIT = 1024  # select() cannot watch higher descriptors


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop; with fine timers where the system has epoll."""
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(_fine_epoll())


def _fine_epoll() -> selectors.BaseSelector:
    class FineEpoll(selectors.EpollSelector):
        """Epoll with a time-out finer than a millisecond."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """As ``EpollSelector.select``."""
            if timeout is not None and timeout > 0 and self.fileno() < SELECT_LIMIT:
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)

    return FineEpoll()


def run(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """``asyncio.run(start())`` on such a loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(start())
