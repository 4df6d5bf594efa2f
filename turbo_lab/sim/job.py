"""One request on its way through a simulated engine: what it wants, has, and when it got it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turbo_lab.core.errors import UsageError
from turbo_lab.sim.clock import LATEST_S, to_fs

if TYPE_CHECKING:
    from turbo_lab.sim.block_pool import Extent
    from turbo_lab.sim.step_log import StepLog
    from turbo_lab.workload.trace_request import TraceRequest


class Job:
    """A request's state. Mutable; only the replica that holds it changes it.

    Attributes:
        index: its number in the trace.
        sent_fs: when the client sent it.
        prompt, output: tokens of prompt and reply (a reply has at least one).
        computed: tokens whose keys and values are in the cache.
        generated: reply tokens that are out.
        start_step: step of the decoding group in which it entered.
        ticket: number of this stay in a decoding group, of all ``visits``; 0 outside of one.
        own_blocks: blocks that no other request may use.
        extents: shared runs of prompt blocks that it holds.
        kept: its own full blocks after a preemption, as long as nobody took them.
        hit_tokens: prompt tokens that the cache had at its first admission.
        first_fs, last_fs: times of its first and last token.
        ready: its keys and values came over a link, so it decodes at once.
        failures: when replicas failed under it.
        bursts: its tokens, where kept: (log, step before the first, last step, tokens per step),
            or (None, time, time, tokens) for the token that ends a prompt.
    """

    __slots__ = (
        "admitted", "bursts", "computed", "extents", "failures", "first_fs", "generated",
        "hit_tokens", "index", "kept", "last_fs", "output", "own_blocks", "preemptions", "prompt",
        "ready", "replica", "request", "sent_fs", "start_step", "ticket",
        "visits",
    )  # fmt: skip

    def __init__(self, request: TraceRequest, index: int) -> None:
        self.request = request
        self.index = index
        if not -LATEST_S < request.arrival_s < LATEST_S:
            raise UsageError(
                f"request {index} arrives at {request.arrival_s:g} s; allowed: below {LATEST_S:g} "
                "s. Are the trace's times in seconds?"
            )
        self.sent_fs = to_fs(request.arrival_s)
        self.prompt = request.input_tokens
        self.output = request.output_tokens or 1
        self.computed = self.generated = self.own_blocks = 0
        self.hit_tokens = self.preemptions = self.ticket = self.visits = self.start_step = 0
        self.first_fs = self.last_fs = -1
        self.admitted = self.ready = False
        self.extents: list[Extent] = []
        self.kept: Extent | None = None
        self.bursts: list[tuple[StepLog | None, int, int, int]] | None = None
        self.failures: list[int] | None = None
        self.replica = -1

    def enter(self, step: int) -> None:
        """Join a group of decoding sequences."""
        self.visits += 1
        self.ticket = self.visits
        self.start_step = step

    def restart(self, now_fs: int) -> None:
        """Forget all that was done for it: the replica that held it is gone."""
        self.failures = [*(self.failures or []), now_fs]
        self.computed = self.generated = self.own_blocks = self.ticket = 0
        self.first_fs = self.last_fs = -1
        self.ready, self.extents, self.kept = False, [], None
        if self.bursts is not None:
            self.bursts = []

    def arrive(self, *, ready: bool) -> None:
        """Enter another replica with nothing in its cache, or with all of it (``ready``)."""
        self.computed = self.own_blocks = 0
        self.ready, self.extents, self.kept = ready, [], None

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens that exist now."""
        return self.prompt + self.generated
