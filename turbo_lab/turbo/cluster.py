"""Runs jobs on hosts and a switch, and gives back what each step took and carried."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import TurboLabError, UnmeasuredError, UsageError
from turbo_lab.network.hosts import Counters, Hosts
from turbo_lab.network.link import Link
from turbo_lab.turbo.board import Board
from turbo_lab.turbo.packet import WIRE_BYTES, frame_bytes
from turbo_lab.turbo.strategies import busiest_load, nodes_of, payload_bytes
from turbo_lab.turbo.work import Job

START_TIMEOUT_S = 60.0
LEAD_S = 0.05
POLL_S = 0.005
ARP_BYTES = 42  # a question or an answer of address resolution


@dataclass(frozen=True)
class NodeFacts:
    """What one node did in one job. ``counted``: its interface's counters, None where paced."""

    node: int
    contributes: bool
    seconds: float | None
    layers_s: tuple[float, ...]
    cpu_s: float
    sent_bytes: int
    received_bytes: int
    datagrams: int
    repeated: int
    lost: int
    doubled: int
    reordered: int
    worst_steps: float | None = None
    mean_steps: float | None = None
    in_order: bool | None = None
    digest: int | None = None
    counted: Counters | None = None

    @property
    def cpu_per_datagram_s(self) -> float | None:
        """Processor seconds per datagram, sent or received."""
        return self.cpu_s / self.datagrams if self.datagrams else None

    @property
    def uncounted_bytes(self) -> int | None:
        """What the interface has sent beyond datagrams and their 42 bytes of headers each."""
        if self.counted is None:
            return None
        return self.counted.sent_bytes - self.sent_bytes - WIRE_BYTES * self.counted.sent_packets


@dataclass(frozen=True)
class StepRun:
    """One job, run."""

    job: Job
    nodes: tuple[NodeFacts, ...]
    kind: str

    @property
    def hosts(self) -> tuple[NodeFacts, ...]:
        """The nodes that had parts."""
        return tuple(n for n in self.nodes if n.contributes)

    @property
    def merging(self) -> NodeFacts:
        """The node that merges most: the switch, host 0, or (ring) any."""
        return max(self.nodes, key=lambda n: n.datagrams)

    @property
    def step_s(self) -> float:
        """Median over steps of the time until the last host has the last layer.

        Per layer the slowest host counts, as no host can go on without it.
        """
        layers = zip(*(n.layers_s for n in self.hosts), strict=True)
        slowest = [max(each) for each in layers]
        per = self.job.layers
        return statistics.median(sum(slowest[i : i + per]) for i in range(0, len(slowest), per))

    @property
    def repeated(self) -> int:
        """Datagrams that were sent again or asked for."""
        return sum(n.repeated for n in self.nodes)

    def payload_is_formula(self) -> bool:
        """True when every node sent and received exactly what the formula says."""
        vectors = self.job.step_vectors * self.job.steps
        return all(
            (n.sent_bytes, n.received_bytes)
            == payload_bytes(
                self.job.strategy, hosts=self.job.hosts, node=n.node, vectors=vectors,
                dim=self.job.dim,
            )
            for n in self.nodes
        )  # fmt: skip

    def right(self) -> bool:
        """All hosts hold the same bits; in a ring those of the merge in order."""
        same = len({n.digest for n in self.hosts}) == 1
        return same and (self.job.strategy != "ring" or all(n.in_order for n in self.hosts))

    def link_over_cpu(self, link: Link) -> float:
        """Time on the busiest link over processor time of the busiest merging node."""
        return link_s(self.job, link=link) * self.job.steps / self.merging.cpu_s

    def row(self) -> dict[str, Any]:
        """Plain numbers for a table or a record."""
        return {
            "strategy": self.job.strategy, "hosts": self.job.hosts, "step_s": self.step_s,
            "sent_bytes": max(n.sent_bytes for n in self.hosts) // self.job.steps,
            "received_bytes": max(n.received_bytes for n in self.hosts) // self.job.steps,
            "total_sent_bytes": sum(n.sent_bytes for n in self.nodes) // self.job.steps,
            "formula": self.payload_is_formula(), "repeated": self.repeated,
            "right": self.right(), "worst_steps": max(n.worst_steps or 0 for n in self.hosts),
            "mean_steps": statistics.fmean(n.mean_steps or 0 for n in self.hosts),
            "merge_cpu_s": self.merging.cpu_s, "merge_datagrams": self.merging.datagrams,
            "uncounted_bytes": _most(n.uncounted_bytes for n in self.nodes),
        }  # fmt: skip


def _most(values: Any) -> int | None:
    known = [abs(v) for v in values if v is not None]
    return max(known) if known else None


def link_s(job: Job, *, link: Link) -> float:
    """Seconds that a step's frames occupy the busiest link: ``load * vectors * frame / rate``.

    Raises UnmeasuredError for a link that is not shaped.
    """
    if link.rate_bytes_s is None:
        raise UnmeasuredError("the link is not shaped, so it has no rate to divide by")
    load = busiest_load(job.strategy, hosts=job.hosts)
    return load * job.step_vectors * frame_bytes(job.dim) / link.rate_bytes_s


def run_jobs(
    hosts: Hosts, jobs: Sequence[Job], *, report: Callable[[str], None] = lambda line: None
) -> list[StepRun]:
    """Run jobs one after the other on open hosts; the last host is the switch.

    The switch's own link is opened up, as a switch has a port per host and not one for all.
    ``jobs`` of fewer hosts than there are use the first ones.

    Raises:
        UsageError: a job of more hosts than are open beside the switch.
        TurboLabError: a process that ended or did not come to an end in time.
    """
    switch = hosts.count - 1
    if too_many := [job.hosts for job in jobs if job.hosts > switch]:
        raise UsageError(
            f"a job wants {too_many[0]} hosts, {switch} are open beside the switch; open "
            f"{too_many[0] + 1}"
        )
    if hosts.kind == "namespaces":
        hosts.shape(switch, Link(None, mtu_bytes=hosts.link.mtu_bytes))
    board = Board(hosts.folder / "board")
    board.put("plan", _plan(hosts, jobs, switch=switch))
    processes = [
        hosts.run(
            machine,
            [sys.executable, "-m", "turbo_lab.turbo.switch", str(board.folder), str(machine)],
            timeout_s=START_TIMEOUT_S + sum(_limit_s(job, hosts.link) for job in jobs),
            env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        for machine in range(hosts.count)
    ]
    try:
        _wait(board, [f"up-{m}" for m in range(hosts.count)], processes, START_TIMEOUT_S)
        runs = []
        for index, job in enumerate(jobs):
            runs.append(_run_one(hosts, board, index, job, processes, switch=switch))
            report(f"  {job.strategy} over {job.hosts} hosts: {runs[-1].step_s:.2f} s")
        for process in processes:
            process.check(START_TIMEOUT_S)
    finally:
        for process in processes:
            process.stop(grace_s=0.2)
    return runs


def _plan(hosts: Hosts, jobs: Sequence[Job], *, switch: int) -> dict[str, Any]:
    everyone = range(hosts.count)
    paced = hosts.link.rate_bytes_s if hosts.kind == "paced" else None
    return {
        "addresses": {m: [hosts.address(m), hosts.free_port(m)] for m in everyone},
        "rates": [None if m == switch else paced for m in everyone],
        "switch": switch,
        "jobs": [job.to_dict() for job in jobs],
    }


def _limit_s(job: Job, link: Link) -> float:
    """Longer than a job may take, however busy the machine: a hang must end."""
    ideal_s = link_s(job, link=link) * job.steps if link.rate_bytes_s else 0.0
    return 60.0 + 20 * ideal_s + 20 * job.remind_s * job.steps


def _run_one(
    hosts: Hosts, board: Board, index: int, job: Job, processes: Sequence[Any], *, switch: int
) -> StepRun:
    machines = [switch if n == job.hosts else n for n in nodes_of(job.strategy, hosts=job.hosts)]
    before = [_counters(hosts, m) for m in machines]
    board.put(f"start-{index}", time.monotonic() + LEAD_S)
    limit_s = _limit_s(job, hosts.link)
    _wait(board, [f"done-{index}-{m}" for m in machines], processes, limit_s)
    board.put(f"stop-{index}")
    _wait(board, [f"facts-{index}-{m}" for m in machines], processes, limit_s)
    nodes = []
    for machine, first in zip(machines, before, strict=True):
        found = board.get(f"facts-{index}-{machine}")
        found.pop("foreign")
        last = _counters(hosts, machine)
        found["layers_s"] = tuple(found["layers_s"])
        nodes.append(
            NodeFacts(
                node=job.hosts if machine == switch else machine,
                counted=last.since(first) if last and first else None,
                **found,
            )
        )
    return StepRun(job, tuple(nodes), hosts.kind)


def _counters(hosts: Hosts, machine: int) -> Counters | None:
    try:
        return hosts.counters(machine)
    except UnmeasuredError:
        return None


def _wait(board: Board, names: Sequence[str], processes: Sequence[Any], limit_s: float) -> None:
    """Until all facts are there. Raises TurboLabError when a process has ended or time is up."""
    deadline_s = time.monotonic() + limit_s
    missing = list(names)
    while missing := [name for name in missing if not board.has(name)]:
        for process in processes:
            if process.poll() not in (None, 0):
                raise TurboLabError(f"{process.describe()} has failed.\n{process.tail()}")
        if time.monotonic() > deadline_s:
            raise TurboLabError(f"no {missing[0]!r} within {limit_s:.0f} s\n{processes[0].tail()}")
        time.sleep(POLL_S)
