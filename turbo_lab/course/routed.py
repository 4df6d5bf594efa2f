"""A lesson's trial of a real router over two replicas: foretold policy by policy, then sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turbo_lab.core.errors import TurboLabError, UnmeasuredError
from turbo_lab.course.lesson import Lesson
from turbo_lab.sim import router_live
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.result import SimResult
from turbo_lab.sim.router_live import Routed
from turbo_lab.sim.router_witness import SharedBeginnings, foretell, hit_range, schedule

UNKNOWN = 0.1  # the tolerance of a prediction that has no number


class RouterTrial:
    """One load on the same replicas under several policies.

    Attributes:
        load: what is sent.
        replicas: the running servers; stand-ins in replay, or where they could not start.
    """

    def __init__(
        self, lab: Lesson, load: SharedBeginnings, *, start: Callable[[], Sequence[Any]], vocab: int
    ) -> None:
        self.load, self._lab, self._vocab = load, lab, vocab
        self._start = start
        self._started: tuple[Any, ...] = ()
        self._failure: TurboLabError | None = None
        self.replicas = [lab.engine(lambda n=n: self._nth(n)) for n in range(load.replicas)]
        self._calibration: Calibration | None = None
        self._times: list[float] = []
        self._told: dict[str, SimResult] = {}
        self._seen: dict[str, Routed | None] = {}

    def _nth(self, number: int) -> Any:
        """One replica; all are started at the first call, and not again after a failure."""
        if self._failure is not None:
            raise self._failure
        if not self._started:
            try:
                self._started = tuple(self._start())
            except TurboLabError as error:
                self._failure = error
                raise
        return self._started[number]

    def calibrate(self, *, share: float, rounds: int = 1) -> Calibration | None:
        """Measure the replicas' step times under ``replica_calibration``, or replay them.

        From them follow the send times: ``share`` of the fleet's saturation. None where unmeasured.
        """
        found = self._lab.observe(
            "replica_calibration",
            lambda: router_live.calibrate_replicas(self.replicas, rounds=rounds).to_dict(),
        )
        if found is not None:
            self._calibration = Calibration.from_dict(found)
            self._times = schedule(self.load, self._calibration, share=share)
        return self._calibration

    def foretold(self, policy: str) -> SimResult:
        """The load behind this policy, simulated. Raises UnmeasuredError without a calibration."""
        if policy not in self._told:
            self._told[policy] = foretell(self.load, self._known(), self._times, policy=policy)
        return self._told[policy]

    def tolerance(self, policy: str) -> float:
        """How far the count of hits can be trusted, relative: the simulator's own range for engines
        up to 1.5 times as fast or slow, and one tenant's beginning more or less.
        """
        if self._calibration is None:
            return UNKNOWN
        told = self.foretold(policy).hit_tokens
        least, most = hit_range(self.load, self._calibration, self._times, policy=policy)
        return (max(most - told, told - least) + self.load.beginning_tokens) / max(1, told)

    def sent(self, policy: str) -> Routed:
        """The load through a real router with this policy, observed under ``routed_<policy>``.

        Raises UnmeasuredError with its reason.
        """
        if policy not in self._seen:
            found = self._lab.observe(f"routed_{policy}", lambda: self._route(policy).to_dict())
            self._seen[policy] = Routed.from_dict(found) if found else None
        seen = self._seen[policy]
        if seen is None:
            raise UnmeasuredError(f"{policy} was not run; the reason is printed above")
        return seen

    def _route(self, policy: str) -> Routed:
        self._known()
        return router_live.route(
            self.replicas, self.load, self._times, policy=policy, vocab=self._vocab
        )

    def _known(self) -> Calibration:
        if self._calibration is None:
            raise UnmeasuredError("the replicas were not calibrated; the reason is printed above")
        return self._calibration

    def rows(self, policies: Sequence[str]) -> dict[str, dict[str, Any]]:
        """A table: by policy what was foretold and what was seen; None where unmeasured."""
        return {policy: self._row(policy) for policy in policies}

    def _row(self, policy: str) -> dict[str, Any]:
        names = ("hit tokens", "TTFT P50 [s]", "requests by replica")
        row: dict[str, Any] = dict.fromkeys(
            [f"{name}, {how}" for name in names for how in ("simulated", "measured")]
        )
        try:
            told = self.foretold(policy)
            seen = self.sent(policy)
        except UnmeasuredError:
            return row
        counts = [0] * self.load.replicas
        for job in told.jobs or ():
            counts[job.replica] += 1
        values = (
            told.hit_tokens, seen.hit_tokens, told.metrics["ttft"].percentile(50),
            seen.ttft_median_s, counts, list(seen.sent),
        )  # fmt: skip
        return dict(zip(row, values, strict=True))

    def first_tokens(self, policy: str) -> dict[str, list[float]]:
        """Seconds to the first token of each request, in order: ``simulated`` and ``measured``."""
        try:
            told, seen = self.foretold(policy), self.sent(policy)
        except UnmeasuredError:
            return {"simulated": [], "measured": []}
        jobs = sorted(told.jobs or (), key=lambda job: job.index)
        simulated = [(job.first_fs - job.sent_fs) / 1e15 for job in jobs]
        return {"simulated": simulated, "measured": list(seen.ttft_s)}

    def close(self) -> None:
        """Stop the replicas: no other lesson has a use for them."""
        for server in self._started:
            server.stop()
