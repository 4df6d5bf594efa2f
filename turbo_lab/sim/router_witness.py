"""Two routing policies on replicas with small caches, foretold: what a real router is held against.

Tenants share nothing with each other, and all prompts of one tenant begin alike. A replica's cache
holds the beginnings of its share of the tenants, not of all. A router that follows prefixes gives
each replica its share; round robin gives every replica all of them, and the caches forget.

The first prompts of all tenants come at once, so that the loads divide the tenants evenly: an idle
fleet's router would give every new beginning to the same replica.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.prefix import SPECIAL, prompt_request
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.result import SimResult
from turbo_lab.sim.routers import PrefixAware, RoundRobin, Router
from turbo_lab.sim.simulate import simulate
from turbo_lab.workload import arrivals
from turbo_lab.workload.prompts import token_id_prompts
from turbo_lab.workload.request import Request
from turbo_lab.workload.trace_request import TraceRequest

OPENING_GAP_S = 0.01  # between the first prompts of two tenants: their order is then certain


@dataclass(frozen=True, kw_only=True)
class SharedBeginnings:
    """Requests of ``tenants``, each with a beginning of its own, ``turns`` from each.

    ``beginning_blocks``: whole blocks that a tenant's prompts share. ``rest_tokens``: what follows,
    less than a block with the reply of ``reply_tokens``, so that nothing else is ever found again.
    """

    tenants: int = 12
    turns: int = 4
    beginning_blocks: int = 3
    rest_tokens: int = 40
    reply_tokens: int = 24
    block_tokens: int = 128
    replicas: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes with which the policies would not differ, or could not be foretold."""
        least = {"tenants": 2 * self.replicas, "turns": 2, "beginning_blocks": 1, "rest_tokens": 1,
                 "reply_tokens": 1, "block_tokens": 2, "replicas": 2}  # fmt: skip
        for name, low in least.items():
            if getattr(self, name) < low:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: {low} or more")
        if self.rest_tokens + self.reply_tokens > self.block_tokens:
            raise UsageError(
                f"rest_tokens and reply_tokens are {self.rest_tokens} and {self.reply_tokens}; "
                f"together at most a block of {self.block_tokens}"
            )

    @property
    def beginning_tokens(self) -> int:
        """Length of what a tenant's prompts share."""
        return self.beginning_blocks * self.block_tokens

    @property
    def prompt_tokens(self) -> int:
        """Length of every prompt."""
        return self.beginning_tokens + self.rest_tokens

    @property
    def pool_blocks(self) -> int:
        """Blocks of a replica's cache: its share of the tenants fits, one request of each at once.

        All tenants' beginnings do not fit, or the sizes are refused.
        """
        return -(-self.tenants // self.replicas) * (self.beginning_blocks + 1)

    def order(self) -> list[int]:
        """Tenant of each request: all once, then the other turns mixed."""
        first = list(range(self.tenants))
        later = first * (self.turns - 1)
        random.Random(f"beginnings-{self.seed}").shuffle(later)
        return first + later

    def requests(self, *, model: str, vocab: int) -> list[Request]:
        """What is sent, in order. Token ids, so that lengths and blocks are exact."""
        facts = {"vocab_size": vocab, "avoid": SPECIAL}
        begin = token_id_prompts(
            self.tenants, tokens=self.beginning_tokens, seed=2 * self.seed + 1, **facts
        )
        rest = token_id_prompts(
            self.tenants * self.turns, tokens=self.rest_tokens, seed=2 * self.seed + 2, **facts
        )
        return [
            prompt_request(
                [*begin[tenant], *rest[number]], model=model, output_tokens=self.reply_tokens,
                return_token_ids=True,
            )
            for number, tenant in enumerate(self.order())
        ]  # fmt: skip

    def trace(self, schedule_s: Sequence[float]) -> list[TraceRequest]:
        """The same requests for the simulator: equal ids are equal beginnings."""
        blocks, order = self.beginning_blocks, self.order()
        own = self.tenants * blocks
        return [
            TraceRequest(
                when, self.prompt_tokens, self.reply_tokens,
                block_ids=(*range(tenant * blocks, (tenant + 1) * blocks), own + number),
                block_tokens=self.block_tokens, tenant=str(tenant),
            )
            for number, (when, tenant) in enumerate(zip(schedule_s, order, strict=True))
        ]  # fmt: skip

    def opening(self) -> list[float]:
        """Send times of the tenants' first prompts."""
        return [number * OPENING_GAP_S for number in range(self.tenants)]


def engine_for(calibration: Calibration) -> Engine:
    """A replica with its prefix cache."""
    return Engine(calibration, prefix_cache=True)


def simulated_router(
    policy: str, *, share: float = 0.3, spread: int = 64, ratio: float = 1.5
) -> Router:
    """The simulator's router for a policy of vllm-router; thresholds are its defaults.

    Raises UsageError for a policy that has no counterpart here.
    """
    if policy == "cache_aware":
        return PrefixAware(share=share, spread=spread, ratio=ratio)
    if policy == "round_robin":
        return RoundRobin()
    raise UsageError(f"policy is {policy!r}; foretold are cache_aware and round_robin")


def schedule(load: SharedBeginnings, calibration: Calibration, *, share: float) -> list[float]:
    """Send times: the opening, a pause until it is over, then Poisson arrivals.

    ``share``: of the rate at which the fleet saturates under round robin with this load, all
    waiting, as simulated. The pause is as long as the simulated opening again, so that an engine
    up to twice as slow as foretold is idle at its end.
    """
    if not 0 < share <= 1:
        raise UsageError(f"share is {share}; allowed: above 0, at most 1")
    engine, fleet = engine_for(calibration), {"replicas": load.replicas}
    opening = load.opening()
    first = load.trace([*opening, *[0.0] * (len(load.order()) - load.tenants)])[: load.tenants]
    opened = simulate(first, engine, router=simulated_router("round_robin"), **fleet)
    crowd = load.trace([0.0] * len(load.order()))
    full = simulate(crowd, engine, router=simulated_router("round_robin"), **fleet)
    rate = share * full.completed / full.duration_s
    later = arrivals.poisson(len(crowd) - load.tenants, rate_per_s=rate, seed=load.seed)
    begin_s = opening[-1] + 2 * opened.duration_s
    return [*opening, *(begin_s + when for when in later)]


def foretell(
    load: SharedBeginnings, calibration: Calibration, schedule_s: Sequence[float], *, policy: str
) -> SimResult:
    """The same requests at the same times on simulated replicas behind the same policy."""
    return simulate(
        load.trace(schedule_s), engine_for(calibration), replicas=load.replicas,
        router=simulated_router(policy), keep_timelines=True,
    )  # fmt: skip


def hit_range(
    load: SharedBeginnings,
    calibration: Calibration,
    schedule_s: Sequence[float],
    *,
    policy: str,
    factor: float = 1.5,
) -> tuple[int, int]:
    """Fewest and most tokens found on engines up to ``factor`` times as fast or as slow.

    How far a count can be trusted whose load comes at fixed times: which blocks are forgotten
    depends a little on when a request ends.
    """
    speeds = [factor ** (step / 2) for step in range(-2, 3)]
    found = [
        foretell(load, calibration.scaled(speed), schedule_s, policy=policy).hit_tokens
        for speed in speeds
    ]
    return min(found), max(found)
