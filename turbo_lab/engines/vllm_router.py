"""A real ``vllm-router`` process in front of running vLLM servers.

What ``cache_aware`` of version 0.1.17 does, as seen from outside: it follows the token ids of the
prompts it sent before. Where more than ``cache_threshold`` of a prompt was sent to a replica, that
replica gets it; else the one with the fewest requests in it, the first of equals. When the loads
differ by more than ``balance_abs_threshold`` requests and ``balance_rel_threshold`` times, the
least loaded one gets it in any case. It passes prompts of token ids on as they are, and takes
``continuous_usage_stats`` out of a request: tokens per chunk are known only with
``return_token_ids``.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import EngineError, MissingDependencyError, UsageError, did_you_mean
from turbo_lab.engines.base import GuardedProcess, free_port, http_get, require_free_port
from turbo_lab.engines.managed import ManagedServer

PACKAGE = "vllm-router"
POLICIES = (
    "cache_aware", "consistent_hash", "kv_aware", "power_of_two", "random", "round_robin",
    "sticky_least_loaded",
)  # fmt: skip
SENT = re.compile(r'^vllm_router_processed_requests_total\{worker="([^"]+)"\} ([\d.e+]+)', re.M)
WORKER_PATIENCE_S = 30  # how long the router itself waits for its workers


@dataclass(frozen=True, kw_only=True)
class RoutingRule:
    """A policy and its thresholds; the defaults are those of vllm-router 0.1.17.

    ``cache_threshold``: share of a prompt that must be known of a replica (``cache_aware``).
    ``balance_abs_threshold`` (requests) and ``balance_rel_threshold`` (ratio): loads that differ by
    more than both are levelled first.
    """

    policy: str = "cache_aware"
    cache_threshold: float = 0.3
    balance_abs_threshold: int = 64
    balance_rel_threshold: float = 1.5

    def __post_init__(self) -> None:
        """Refuse what the router would only refuse after its start."""
        if self.policy not in POLICIES:
            raise UsageError(f"policy is {self.policy!r}.{did_you_mean(self.policy, [*POLICIES])}")
        if not 0 <= self.cache_threshold <= 1:
            raise UsageError(f"cache_threshold is {self.cache_threshold}; allowed: 0 to 1")
        if self.balance_abs_threshold < 0 or not 1 <= self.balance_rel_threshold < float("inf"):
            raise UsageError(
                f"balance_abs_threshold is {self.balance_abs_threshold}, balance_rel_threshold "
                f"{self.balance_rel_threshold}; allowed: 0 or more requests, a ratio of 1 or more"
            )

    def flags(self) -> list[str]:
        """The router's command-line flags."""
        return [
            "--policy", self.policy,
            "--cache-threshold", str(self.cache_threshold),
            "--balance-abs-threshold", str(self.balance_abs_threshold),
            "--balance-rel-threshold", str(self.balance_rel_threshold),
        ]  # fmt: skip


class RouterProcess(ManagedServer):
    """One router. Use it as a context manager, or call ``stop``; nothing is left behind.

    A failed request is not sent again (the router would, by default): each request is counted
    once. ``folder`` keeps log and status (default: a new one in the cache). ``port``: loopback
    port, a free one by default.
    """

    what = "vllm-router"

    def __init__(
        self,
        workers: Sequence[str],
        *,
        rule: RoutingRule | None = None,
        folder: Path | None = None,
        port: int | None = None,
    ) -> None:
        if host.package_version(PACKAGE) is None:
            raise MissingDependencyError(PACKAGE, needed_for="routing over several vLLM servers")
        self.workers = tuple(_checked(workers))
        self.rule = rule or RoutingRule()
        self.port = require_free_port(port) if port else free_port()
        self.metrics_port = free_port()
        self.load_s: float | None = None
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{PACKAGE}-{self.port}"
        self.process = GuardedProcess(
            command=self._command(),
            folder=folder or host.cache_folder() / "servers" / name,
            env={"PYTHONUNBUFFERED": "1", "NO_PROXY": "127.0.0.1,localhost"},
        )

    def _command(self) -> list[str]:
        return [
            sys.executable, "-m", "vllm_router.launch_router",
            "--host", "127.0.0.1", "--port", str(self.port),
            "--prometheus-host", "127.0.0.1", "--prometheus-port", str(self.metrics_port),
            "--worker-startup-timeout-secs", str(WORKER_PATIENCE_S),
            "--worker-startup-check-interval", "1",
            "--disable-retries", *self.rule.flags(), "--worker-urls", *self.workers,
        ]  # fmt: skip

    def wait_ready(self, timeout_s: float = WORKER_PATIENCE_S + 30.0) -> float:
        """Wait until the router and all its workers are healthy; returns seconds since the start.

        Raises EngineError with the log's last lines when it ends or is too slow.
        """
        return super().wait_ready(timeout_s)

    def effective_config(self) -> dict[str, Any]:
        """Version, rule, workers and command line, of a router that answers. Raises EngineError."""
        self._get("/health", port=self.port)
        return {
            "engine": PACKAGE,
            "version": host.package_version(PACKAGE),
            "policy": self.rule.policy,
            "flags": self.rule.flags(),
            "workers": list(self.workers),
            "command": self.process.command,
        }

    def metrics(self) -> dict[str, float]:
        """All samples of the router's own metrics page: ``name{labels}`` to value."""
        rows = self._get("/metrics", port=self.metrics_port).splitlines()
        pairs = (row.rsplit(" ", 1) for row in rows if row and not row.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def sent(self) -> dict[str, int]:
        """Requests that each worker got from this router so far, by its address."""
        page = self._get("/metrics", port=self.metrics_port)
        found = {url: round(float(count)) for url, count in SENT.findall(page)}
        return {url: found.get(url, 0) for url in self.workers}

    def _get(self, path: str, *, port: int) -> str:
        try:
            status, body = http_get(f"http://127.0.0.1:{port}", path)
        except OSError as error:
            told = f"log: {self.log}" if self.alive() else self.process.explain()
            raise EngineError(f"the router does not answer: {error}\n{told}") from error
        if status != 200:
            raise EngineError(f"the router's {path} answered {status}: {body[:300]!r}")
        return body.decode()


def _checked(workers: Sequence[str]) -> list[str]:
    """Addresses without a slash at the end. Raises UsageError."""
    if not workers:
        raise UsageError("a router needs at least one worker, e.g. http://127.0.0.1:8000")
    found = [url.rstrip("/") for url in workers]
    for url in found:
        if not re.fullmatch(r"http://[^/\s]+:\d+", url):
            raise UsageError(f"worker is {url!r}; allowed: http://HOST:PORT")
    if len(set(found)) < len(found):
        raise UsageError(f"a worker is named twice: {', '.join(found)}")
    return found
