"""A running server under observation: ask it, and keep what a fault changed in log and page."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from turbo_lab.client.load import run_closed_loop
from turbo_lab.client.stream import API_KEY_VARIABLE
from turbo_lab.core.errors import EngineError
from turbo_lab.diagnose.injection.fault import Evidence
from turbo_lab.diagnose.page_rules import DEFAULT_LIMITS, Limits, difference
from turbo_lab.diagnose.pages import Page, parse_page
from turbo_lab.engines.base import http_get
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.prompts import token_id_prompts
from turbo_lab.workload.request import Request

PATIENCE_S = 10.0  # for the server to count its last request
PROMPT_TOKENS = 16
IDS = range(100, 1000)  # every vocabulary has them, and few of its special tokens are among them
TIMEOUT_S = 300.0
# Load lines tell of the ten seconds before them, which may reach back to before the fault; the
# page's counters are exact.
INTERVAL_LINE = b"throughput: "


class Server(Protocol):
    """What is needed of a server; VllmServer has it."""

    base_url: str
    model_name: str
    log: Path

    def alive(self) -> bool:
        """True while its process runs."""


@contextlib.contextmanager
def client_key(key: str | None) -> Iterator[None]:
    """The load client sends this API key inside the block; the key before it comes back."""
    before = os.environ.get(API_KEY_VARIABLE)
    _set_key(key)
    try:
        yield
    finally:
        _set_key(before)


def _set_key(key: str | None) -> None:
    if key is None:
        os.environ.pop(API_KEY_VARIABLE, None)
    else:
        os.environ[API_KEY_VARIABLE] = key


@dataclass
class Patient:
    """A server, its key and its limits.

    Attributes:
        server: the running server.
        key: the API key it wants; None for none.
        seats: requests that it works on at once.
        longest_tokens: its ``max_model_len``.
        limits: thresholds for its page.
    """

    server: Server
    key: str | None = None
    seats: int = 1
    longest_tokens: int = 256
    limits: Limits = DEFAULT_LIMITS
    _seed: int = field(default=0, repr=False)

    def requests(
        self,
        count: int,
        *,
        reply_tokens: int = 8,
        prompt_tokens: int = PROMPT_TOKENS,
        **fields: Any,
    ) -> list[Request]:
        """Requests of known length, never two with one beginning. ``fields`` as of ``Request``."""
        self._seed += 1
        prompts = token_id_prompts(
            count,
            tokens=prompt_tokens,
            vocab_size=IDS.stop,
            avoid=range(IDS.start),
            seed=self._seed,
        )
        given = {"model": self.server.model_name, "max_tokens": reply_tokens,
                 "endpoint": "completions", "extra": {"ignore_eos": True}, **fields}  # fmt: skip
        return [Request(prompt, **given) for prompt in prompts]

    def ask(
        self,
        requests: Sequence[Request],
        *,
        concurrency: int | None = None,
        base_url: str | None = None,
        timeout_s: float = TIMEOUT_S,
        retries: int = 0,
        key: str | None = None,
    ) -> list[Timeline]:
        """Send them, by default all at once, with the right key unless another is given."""
        with client_key(key or self.key):
            return run_closed_loop(
                requests, base_url=base_url or self.server.base_url, timeout_s=timeout_s,
                concurrency=concurrency or len(requests), retries=retries,
            )  # fmt: skip

    def page(self) -> Page:
        """The server's ``/metrics`` now. Raises EngineError when it does not answer."""
        try:
            status, body = http_get(self.server.base_url, "/metrics", timeout_s=30.0)
        except OSError as error:
            raise EngineError(
                f"the server gives no page: {error}; log: {self.server.log}"
            ) from error
        if status != 200:
            raise EngineError(f"GET /metrics answered {status}")
        return parse_page(body.decode("utf-8", "replace"), source="metrics")

    def finished(self) -> float:
        """Requests that the server counts as ended, for whatever reason."""
        return self.page().total("finished") or 0.0

    def watch(self) -> Watch:
        """Begin to observe."""
        return Watch(self)

    def learn_limits(self, healthy: Page) -> None:
        """Take the service level from the server's own healthy times.

        A laptop needs a tenth of a second for a token, which a data centre would call a fault. So
        the two absolute limits are raised to ten times this server's own mean, if that is more.
        """
        found = {"ttft_s": healthy.mean("ttft"), "tpot_s": healthy.mean("tpot")}
        raised = {
            name: max(getattr(DEFAULT_LIMITS, name), 10 * mean[0])
            for name, mean in found.items()
            if mean
        }
        self.limits = replace(self.limits, **raised)


class Watch:
    """From now on: the log's new lines, and what the page counted."""

    def __init__(self, patient: Patient) -> None:
        self.patient = patient
        self.offset = patient.server.log.stat().st_size
        self.before = patient.page()

    def log(self) -> bytes:
        """Lines written since, without those that sum up an interval."""
        with self.patient.server.log.open("rb") as stream:
            stream.seek(self.offset)
            lines = stream.read().splitlines(keepends=True)
        return b"".join(line for line in lines if INTERVAL_LINE not in line)

    def evidence(self, runs: Sequence[Timeline] = ()) -> Evidence:
        """What happened since, once the server has counted the requests that went well."""
        ended = sum(1 for run in runs if outcome(run).ok)
        wanted = (self.before.total("finished") or 0.0) + ended
        deadline, page = time.monotonic() + PATIENCE_S, self.patient.page()
        while not _settled(page, wanted) and time.monotonic() < deadline:
            time.sleep(0.05)
            page = self.patient.page()
        return Evidence(self.log(), difference(self.before, page), tuple(runs))


def _settled(page: Page, finished: float) -> bool:
    at_work = (page.total("running") or 0.0) + (page.total("waiting") or 0.0)
    return at_work == 0 and (page.total("finished") or 0.0) >= finished
