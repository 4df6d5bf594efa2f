"""What must hold in a simulated service after every event. Slow: for tests and ``watch``."""

from __future__ import annotations

from collections import Counter

from turbo_lab.core.errors import TurboLabError
from turbo_lab.sim.clock import NEVER
from turbo_lab.sim.fleet import Fleet
from turbo_lab.sim.replica import Replica


class AuditError(TurboLabError):
    """The simulator broke one of its own laws; a bug, not a wrong input."""


def _holds(law: bool, message: str) -> None:
    if not law:
        raise AuditError(f"the simulator is wrong: {message}")


def audit_blocks(replica: Replica) -> None:
    """Every block is free, one request's own, or part of a prefix that its holders share."""
    pool = replica.pool
    idle = sum(extent.blocks for extent in pool.idle)
    _holds(pool.free == pool.blank + idle, f"free {pool.free}, blank {pool.blank}, idle {idle}")
    holders: Counter[int] = Counter()
    own, held = 0, {}
    for job in [*replica.running, *replica.sending]:
        own += job.own_blocks + (replica.decoders.state(job)[1] if job.ticket else 0)
        holders.update(id(extent) for extent in job.extents)
        held.update({id(extent): extent for extent in job.extents})
        _holds(job.own_blocks >= 0, f"request {job.index} owns {job.own_blocks} blocks")
    shared = sum(extent.blocks for extent in held.values())
    paid = replica._paid if replica.decoders.count else 0
    total = pool.free + own + shared + paid
    _holds(total == pool.total, f"{total} blocks of {pool.total}")
    for key, extent in pool.cached.items():
        _holds(extent.key == key, f"block {key} is filed under another name")
        _holds(extent.holders == holders[id(extent)], f"block {key} has {extent.holders} holders")
        _holds((extent in pool.idle) == (not extent.holders), f"block {key} is held and idle")
    for extent in held.values():
        _holds(extent.key is not None, "a block without a hash is shared")
        _holds(pool.cached.get(extent.key) is extent, "a held block is not in the cache")


def audit_replica(replica: Replica, now_fs: int) -> None:
    """Queues, groups and counts of one replica agree, and it ends its work in the future."""
    running, decoders = [*replica.running], replica.decoders
    decoding = [job for job in running if job.ticket]
    prompts = len(replica.prefilled) + (replica.partial is not None)
    _holds(len(running) <= replica._sequences, f"{len(running)} sequences run")
    _holds(decoders.count == len(decoding), f"{decoders.count} decode, {len(decoding)} have a slot")
    _holds(len(running) == len(decoding) + prompts, "a running request neither reads nor writes")
    _holds(replica.load == len(running) + len(replica.waiting), f"load {replica.load}")
    context = sum(decoders.state(job)[0] for job in decoding)
    _holds(decoders.context == context, f"caches hold {context}, not {decoders.context} tokens")
    wanted = sum(job.prompt + job.generated for job in replica.waiting)
    if replica.partial is not None:
        wanted += replica.partial.tokens - replica.partial.computed
    _holds(replica.prompt_load == wanted, f"prompt load {replica.prompt_load}, not {wanted}")
    _holds(replica.end_fs >= now_fs, "work ends in the past")
    idle = replica.end_fs == NEVER
    _holds(not (idle and (running or replica.waiting) and not replica.sending), "it stands still")
    audit_blocks(replica)


def audit(fleet: Fleet) -> None:
    """All laws of a fleet. Raises AuditError naming the first that is broken."""
    for replica in fleet.replicas:
        audit_replica(replica, fleet.now_fs)
    backlog = sum(len(pool.backlog) for pool in {id(p): p for p in fleet.home}.values())
    held = sum(replica.load for replica in fleet.replicas) + backlog + fleet.moving
    _holds(held == fleet.in_flight, f"{fleet.in_flight} requests in flight, {held} somewhere")
