"""Ways to get a server for each run of a sweep: one that is there, or a fresh ``vllm serve``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from turbo_lab.core.closing import Closing
from turbo_lab.core.config import Dials
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.experiment.plan import Scalar
from turbo_lab.experiment.sweep import Launch, Launched


def running(base_url: str, *, model: str) -> Launch:
    """The same running server every time: for variables of the load."""

    @contextmanager
    def launch(_: Scalar) -> Iterator[Launched]:
        yield Launched(base_url, model)

    return launch


def fresh_vllm(dials: Dials, *, key: str | None, model: str | None = None, **fixed: Any) -> Launch:
    """A new ``vllm serve`` for each run, with ``key`` set to the value; stopped after it.

    ``key`` None starts the same server each time (A/A, or a variable of the load). ``fixed`` are
    other arguments. Raises UsageError for an argument that VllmArgs does not have.
    """
    names = VllmArgs.__dataclass_fields__
    for name in [*fixed, *([key] if key else [])]:
        if name not in names:
            from turbo_lab.core.errors import did_you_mean

            raise UsageError(f"unknown engine argument {name!r}.{did_you_mean(name, [*names])}")

    @contextmanager
    def launch(value: Scalar) -> Iterator[Launched]:
        from turbo_lab.engines.defaults import default_args
        from turbo_lab.engines.vllm_server import VllmServer

        changes: Mapping[str, Any] = {**fixed, **({key: value} if key else {})}
        args = default_args(dials, model=model, report=lambda _: None, **changes)
        with VllmServer(args) as server:
            yield Launched(server.base_url, server.model_name)

    return launch


class FreshServers(Closing):
    """A :data:`.sweep.Launch` with one fresh ``vllm serve`` per run, started in rounds.

    Asking for one configuration starts all of them side by side where memory allows, for that takes
    half as long as one after the other. Each server answers one run and is ended after it; a server
    that waits takes no time from the one that is measured. On a GPU each starts when it is asked
    for. To be used as a context, which ends the servers that no run has asked for.
    """

    def __init__(
        self, args: Mapping[str, VllmArgs], *, server: Callable[[VllmArgs], Any] | None = None
    ) -> None:
        """``args``: of each configuration by name. ``server`` makes a server (tests)."""
        self.args = dict(args)
        self._make = server or _vllm_server
        self._waiting: dict[str, Any] = {}

    @contextmanager
    def __call__(self, name: Scalar) -> Iterator[Launched]:
        """A fresh ready server of this configuration. Raises EngineError."""
        wanted = str(name)
        if wanted not in self._waiting:
            self._start_round(wanted)
        server = self._waiting.pop(wanted)
        try:
            server.wait_ready()
            yield Launched(server.base_url, server.model_name)
        finally:
            server.stop()

    def _start_round(self, wanted: str) -> None:
        """Start what is missing; return when all are ready, so that no start meets a run."""
        from turbo_lab.engines.pool import has_room

        missing = [n for n in self.args if n not in self._waiting]
        alone = any(args.device == "gpu" for args in self.args.values())
        if alone or not has_room(self.args[n] for n in missing):
            missing = [wanted]
        for each in missing:
            self._waiting[each] = self._make(self.args[each])
        others = [n for n in missing if n != wanted]
        self._waiting[wanted].start()
        for step in ("start", "wait_ready"):
            for each in others:
                try:
                    if each in self._waiting:
                        getattr(self._waiting[each], step)()
                except EngineError:  # told when its own run asks for it and it fails again
                    self._waiting.pop(each).stop()

    def close(self) -> None:
        """End the servers that still wait for a run."""
        while self._waiting:
            self._waiting.popitem()[1].stop()


def _vllm_server(args: VllmArgs) -> Any:
    from turbo_lab.engines.vllm_server import VllmServer

    return VllmServer(args)
