"""The same load through a real ``vllm-router`` over real vLLM replicas, one share of cores each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from turbo_lab.client.load import run_closed_loop, run_open_loop
from turbo_lab.core import host
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.kv_watch import beside_another, reset_prefix_cache
from turbo_lab.engines.pool import shared_server, start_together
from turbo_lab.engines.vllm_router import RouterProcess, RoutingRule
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate.points import token_marks
from turbo_lab.experiment.prefix import Hits, read_hits
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.calibration_limits import engine_limits
from turbo_lab.sim.calibration_run import SeenSteps, describe, make_calibration, see_steps
from turbo_lab.sim.router_witness import SharedBeginnings

SEATS = 8  # requests that run together in a replica
PATIENCE_S = 10.0  # the server counts a request a moment after its end
NULL_BLOCK = 1  # vLLM keeps one block of the pool for padding


@dataclass(frozen=True)
class Routed:
    """One pass of the load behind one policy.

    ``hit_tokens`` and ``prompt_tokens`` are the engines' own counters, summed; ``replica_hits`` by
    replica. ``sent``: requests that the router gave to each replica. ``ttft_s``: by request, first
    token (shown or not) minus send.
    """

    policy: str
    hit_tokens: int
    prompt_tokens: int
    replica_hits: tuple[int, ...]
    sent: tuple[int, ...]
    ttft_s: tuple[float, ...]
    makespan_s: float

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that were found."""
        return self.hit_tokens / self.prompt_tokens

    @property
    def ttft_median_s(self) -> float:
        """Median of the time to first token."""
        return statistics.median(self.ttft_s)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Routed:
        """Inverse of ``to_dict``."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()})


def core_shares(count: int) -> list[tuple[int, ...]]:
    """The machine's cores in ``count`` equal parts; with fewer cores than parts, all for each."""
    granted = tuple(host.core_ids())
    share = len(granted) // count
    if not share:
        return [granted] * count
    return [granted[i * share : (i + 1) * share] for i in range(count)]


def replica_args(args: VllmArgs, load: SharedBeginnings) -> list[VllmArgs]:
    """``args`` for every replica: its cores, a prefix cache of the load's size, few seats."""
    base = beside_another(args).replace(
        enable_prefix_caching=True, block_size=load.block_tokens, max_num_seqs=SEATS,
        max_num_batched_tokens=args.max_model_len,
        extra=(*args.extra, ("--num-gpu-blocks-override", str(load.pool_blocks + NULL_BLOCK))),
    )  # fmt: skip
    shares = core_shares(load.replicas) if args.device == "cpu" else [args.cores] * load.replicas
    return [
        base.replace(cores=cores, env=(*args.env, ("TURBO_LAB_REPLICA", str(number))))
        for number, cores in enumerate(shares)  # the variable keeps equal replicas apart
    ]


def start_replicas(args: VllmArgs, load: SharedBeginnings) -> list[VllmServer]:
    """All replicas from the current pool, started side by side. Raises EngineError."""
    wanted = replica_args(args, load)
    start_together(*wanted)
    return [shared_server(one) for one in wanted]


def calibrate_replicas(
    replicas: Sequence[VllmServer], *, rounds: int = 1, seed: int = 0, name: str = "one-share"
) -> Calibration:
    """Step times of a replica while the others work too: all are measured at once, as one engine.

    The loads are those of every calibration: other lengths, and nothing that is found again. About
    half a minute a round on one core. Raises EngineError, UnmeasuredError.
    """
    limits = [engine_limits(replica.base_url) for replica in replicas]

    def see(number: int) -> SeenSteps:
        url = replicas[number].base_url
        return see_steps(
            limits[number], rounds=rounds, seed=seed + number,
            send=lambda requests, users: run_closed_loop(
                requests, base_url=url, concurrency=users
            ),
        )  # fmt: skip

    with ThreadPoolExecutor(max_workers=len(replicas)) as side_by_side:
        seen = list(side_by_side.map(see, range(len(replicas))))
    whole = SeenSteps((), ())
    for one in seen:
        whole = whole + one
    source = f"{describe(limits[0], replicas[0].base_url)}, {len(replicas)} replicas at once"
    return make_calibration(whole, limits=limits[0], name=name, source=source)


def route(
    replicas: Sequence[VllmServer],
    load: SharedBeginnings,
    schedule_s: Sequence[float],
    *,
    policy: str,
    vocab: int,
) -> Routed:
    """Send the load through a fresh router to replicas with empty caches.

    Raises UnmeasuredError when a request failed, or when the engines did not count exactly the
    requests that the router sent them.
    """
    for replica in replicas:
        reset_prefix_cache(replica.base_url)
    before = [read_hits(replica) for replica in replicas]
    asked = load.requests(model=replicas[0].model_name, vocab=vocab)
    workers = [replica.base_url for replica in replicas]
    with RouterProcess(workers, rule=RoutingRule(policy=policy)) as router:
        runs = run_open_loop(asked, base_url=router.base_url, schedule_s=schedule_s)
        sent = router.sent()
    ttft_s = tuple(_first_token_s(run) for run in runs)
    counted = [sent[url] for url in workers]
    hits = [
        _hits_of(replica, start, requests=count)
        for replica, start, count in zip(replicas, before, counted, strict=True)
    ]
    return Routed(
        policy=policy, hit_tokens=sum(h.hit_tokens for h in hits),
        prompt_tokens=sum(h.queried_tokens for h in hits),
        replica_hits=tuple(h.hit_tokens for h in hits), sent=tuple(counted), ttft_s=ttft_s,
        makespan_s=max(r.closed_s or 0.0 for r in runs) - min(r.sent_s or 0.0 for r in runs),
    )  # fmt: skip


def _first_token_s(run: Timeline) -> float:
    """Seconds from the send to the first token, shown or not."""
    if not (state := outcome(run)).ok or run.sent_s is None:
        raise UnmeasuredError(f"a request failed: {run.error or state.reason}")
    return token_marks(run, what="a reply through the router")[0][0] - run.sent_s


def _hits_of(replica: VllmServer, before: Hits, *, requests: int) -> Hits:
    """Growth of a replica's counters once it has counted so many requests."""
    deadline = time.monotonic() + PATIENCE_S
    while (hits := read_hits(replica).since(before)).finished < requests:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    if hits.finished != requests:
        raise UnmeasuredError(
            f"the router sent {requests} requests to {replica.base_url}, which counted "
            f"{hits.finished}: others used it, or requests were lost"
        )
    return hits
