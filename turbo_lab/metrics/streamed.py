"""TTFT, TPOT and E2E of requests known by three times and a count, without a Timeline for each.

For runs of millions of simulated requests. The numbers are those that ``summarize`` and
``attainment`` give for the same requests under this project's contract (a test holds them
together): TTFT first token - send, TPOT (last - first) / (tokens - 1), undefined for one token,
E2E last token - send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.metrics.sketch import QuantileSketch, SampleStore

NAMES = ("ttft", "tpot", "e2e")
_CHUNK = 8192


class StreamedMetrics:
    """Metrics of requests that are added one by one.

    ``exact`` keeps every sample; else each metric is a mergeable sketch and memory is bounded.
    ``slo``: limits in seconds by name (ttft, tpot, e2e); a TPOT limit does not apply to one-token
    replies. Raises UsageError for another name or a limit that is not above 0.
    """

    def __init__(self, *, exact: bool = True, slo: Mapping[str, float] | None = None) -> None:
        self.slo = dict(slo or {})
        for name, limit_s in self.slo.items():
            if name not in NAMES:
                raise UsageError(f"objective {name!r}.{did_you_mean(name, [*NAMES])}")
            if not 0 < limit_s < float("inf"):
                raise UsageError(f"the limit of {name} is {limit_s!r} s; it must be above 0")
        self.exact = exact
        self._stores = {n: SampleStore() if exact else QuantileSketch() for n in NAMES}
        self._rows: list[tuple[float, float, int]] = []
        self._attained = self._tokens = self._counted = 0

    def add(self, first_s: float, rest_s: float, tokens: int) -> None:
        """One finished request: send to first token, first to last token, output tokens."""
        rows = self._rows
        rows.append((first_s, rest_s, tokens))
        if len(rows) >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        first, rest, tokens = np.array(self._rows, dtype=float).T
        self._rows.clear()
        many = tokens > 1
        tpot = rest[many] / (tokens[many] - 1)
        values = {"ttft": first, "tpot": tpot, "e2e": first + rest}
        for name, store in self._stores.items():
            store.add(values[name])
        met = np.ones(len(first), dtype=bool)
        for name, limit_s in self.slo.items():
            if name == "tpot":
                met[many] &= tpot <= limit_s
            else:
                met &= values[name] <= limit_s
        self._attained += int(met.sum())
        self._counted += len(first)
        self._tokens += int(tokens.sum())

    def merge(self, other: StreamedMetrics) -> None:
        """Add the requests of another part of the run, kept in the same way for the same limits."""
        if other.slo != self.slo or other.exact != self.exact:
            raise UsageError("parts with other limits, or kept in another way, do not add up")
        self._flush()
        other._flush()
        for name, store in self._stores.items():
            store.merge(other._stores[name])  # type: ignore[arg-type]
        self._attained += other._attained
        self._counted += other._counted
        self._tokens += other._tokens

    def __getitem__(self, name: str) -> QuantileSketch | SampleStore:
        """Samples of a metric in seconds: ``ttft``, ``tpot`` or ``e2e``."""
        self._flush()
        return self._stores[name]

    @property
    def completed(self) -> int:
        """Requests that were added."""
        return self._counted + len(self._rows)

    @property
    def output_tokens(self) -> int:
        """Output tokens of all of them."""
        self._flush()
        return self._tokens

    @property
    def attained(self) -> int:
        """Requests that met every objective; all, where there is none."""
        self._flush()
        return self._attained

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: one entry of statistics per metric, seconds."""
        self._flush()
        return {f"{name}_s": store.to_dict() for name, store in self._stores.items()}
