"""Ways to get a server for each run of a sweep: one that is there, or a fresh ``vllm serve``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from turbo_lab.core.config import Dials
from turbo_lab.core.errors import UsageError
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
