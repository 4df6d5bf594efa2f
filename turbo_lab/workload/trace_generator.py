"""Requests drawn from a trace model: seeded, streamed, in constant memory however many.

Lengths follow the model's quantiles, joined by a Gaussian copula. A prompt that shares more than
the root continues an earlier one: its first blocks are those of a request about as long ago as the
shared blocks of the source lay back. So sessions form trees, and popular branches grow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.trace_arrivals import ArrivalShape, arrival_batches
from turbo_lab.workload.trace_model import PrefixShape, TraceModel
from turbo_lab.workload.trace_request import TraceRequest
from turbo_lab.workload.traces import Marginal

LOOK = 64  # requests around the wanted one that are asked for enough blocks


@dataclass(frozen=True)
class SyntheticTrace:
    """``count`` requests of a model; every iteration gives the same ones.

    Attributes:
        model: what to draw from.
        count: requests.
        seed: equal seeds give equal traces.
        rate_per_s: another mean rate than the model's; the drift keeps its times.
    """

    model: TraceModel
    count: int
    seed: int = 0
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse an empty trace."""
        if self.count < 1:
            raise UsageError(f"count is {self.count}, it must be at least 1")

    def __iter__(self) -> Iterator[TraceRequest]:
        """The requests, in order of arrival."""
        return islice(_requests(self.model, self.arrivals, self.seed), self.count)

    @property
    def arrivals(self) -> ArrivalShape:
        """The arrivals, at the wanted rate."""
        from dataclasses import replace

        if self.rate_per_s is None:
            return self.model.arrivals
        return replace(self.model.arrivals, rate_per_s=self.rate_per_s)


def _requests(model: TraceModel, arrivals: ArrivalShape, seed: int) -> Iterator[TraceRequest]:
    rng = np.random.default_rng([seed, 1])
    prefixes = None if model.prefix is None else _Prefixes(model.prefix, rng)
    for times in arrival_batches(arrivals, seed=seed):
        shares, prompts, outputs = _lengths(model, rng, len(times))
        rows = zip(times.tolist(), prompts.tolist(), outputs.tolist(), strict=True)
        if prefixes is None:
            for when, prompt, output in rows:
                yield TraceRequest(when, prompt, output)
            continue
        for (when, prompt, output), share in zip(rows, shares.tolist(), strict=True):
            ids, session = prefixes.next(prompt, share)
            size = prefixes.shape.block_tokens
            yield TraceRequest(when, prompt, output, ids, size, session=session)


def _lengths(
    model: TraceModel, rng: np.random.Generator, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rank of the prompt's length, prompt tokens, output tokens)."""
    from scipy.special import ndtr

    first, second = rng.standard_normal((2, size))
    joint = 2 * math.sin(math.pi / 6 * model.rank_correlation)  # of the normals under the ranks
    shares = ndtr(first)
    other = ndtr(joint * first + math.sqrt(max(0.0, 1 - joint**2)) * second)
    return shares, _draw(model.prompt, shares), _draw(model.output, other)


def _draw(marginal: Marginal, shares: np.ndarray) -> np.ndarray:
    """Whole lengths of at least 1 at these ranks; log-linear between the quantiles."""
    percents, values = np.array(marginal.points).T
    logs = np.interp(100 * shares, percents, np.log(np.maximum(values, 1)))
    return np.rint(np.exp(logs)).astype(int)


class _Prefixes:
    """Prompts as blocks; the last ``window`` are remembered."""

    def __init__(self, shape: PrefixShape, rng: np.random.Generator) -> None:
        self.shape, self._rng = shape, rng
        self._new = count(shape.root_blocks)
        self._sessions = count()
        self._recent: deque[tuple[tuple[int, ...], str]] = deque(maxlen=shape.window)
        self._edges = np.array([b.up_to for b in shape.bins])
        self._shared = [np.array(b.shared).T for b in shape.bins]
        self._lag = np.array(shape.lag).T
        self._draws: Iterator[list[float]] = iter(())

    def next(self, tokens: int, share: float) -> tuple[tuple[int, ...], str]:
        """(blocks, session) of a prompt whose length has this rank."""
        blocks = -(-tokens // self.shape.block_tokens)
        root = min(self.shape.root_blocks, blocks)
        fresh, rank, back = self._three()
        at = int(np.searchsorted(self._edges, share))
        before = None
        if fresh >= self.shape.bins[at].fresh and self._recent:
            wanted = round(blocks * float(np.interp(100 * rank, *self._shared[at])))
            wanted = min(max(wanted, root + 1), blocks)
            before = self._earlier(float(np.interp(100 * back, *self._lag)), wanted)
        if before is None:
            head, session = tuple(range(root)), f"s{next(self._sessions)}"
        else:
            head, session = before[0][:wanted], before[1]
        ids = head + tuple(islice(self._new, blocks - len(head)))
        self._recent.append((ids, session))
        return ids, session

    def _three(self) -> list[float]:
        row = next(self._draws, None)
        if row is None:
            self._draws = iter(self._rng.random((4096, 3)).tolist())
            row = next(self._draws)
        return row

    def _earlier(self, lag: float, blocks: int) -> tuple[tuple[int, ...], str] | None:
        """A request about ``lag`` ago that has so many blocks; None where there is none near."""
        recent = self._recent
        middle = len(recent) - min(max(1, round(lag)), len(recent))
        for step in range(LOOK):
            for at in {middle - step, middle + step}:
                if 0 <= at < len(recent) and len(recent[at][0]) >= blocks:
                    return recent[at]
        return None


def with_arrivals(
    requests: Iterable[TraceRequest], arrivals: ArrivalShape, *, seed: int
) -> Iterator[TraceRequest]:
    """The same requests in the same order at other times: what burstiness alone does.

    With ``ArrivalShape(rate)`` they come as a Poisson process. A fleet that is sized on that sees
    the same mean load, and none of the minutes in which the rate is double.
    """
    times = (t for batch in arrival_batches(arrivals, seed=seed) for t in batch.tolist())
    for request, when in zip(requests, times, strict=False):
        yield TraceRequest(
            when, request.input_tokens, request.output_tokens, request.block_ids,
            request.block_tokens, request.tenant, request.priority, request.session,
        )  # fmt: skip
