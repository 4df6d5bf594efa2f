"""What notebook 13 measures on real processes: links that fit this machine, steps, faults."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from turbo_lab.core.errors import UnmeasuredError, UsageError, did_you_mean
from turbo_lab.network.cost import MessageCost, fit_message_cost
from turbo_lab.network.link import Link
from turbo_lab.network.links import open_hosts
from turbo_lab.turbo.cluster import StepRun, link_s, run_jobs
from turbo_lab.turbo.nodes import TreeNode
from turbo_lab.turbo.packet import PART, Packet, decode, frame_bytes
from turbo_lab.turbo.strategies import STRATEGIES, busiest_load
from turbo_lab.turbo.switch import Wire
from turbo_lab.turbo.work import MACHINE, Job

LINK_OVER_CPU = 5.0
SPARE = 4.0  # waiting for the socket costs too, and the machine may be busier later on
MTU_BYTES = 576  # the smallest, so that the shaper's burst is small too
QUEUE_S = 2.0
COST_DATAGRAMS = 1500
EFFORTS: dict[str, dict[str, Any]] = {
    "smoke": {"hosts": (2, 4), "layers": 4, "repeats": 1},
    "quick": {"hosts": (2, 4, 8), "layers": 30, "repeats": 2},
    "full": {"hosts": (2, 4, 8), "layers": 30, "repeats": 5},
}
CALIBRATION_SEQUENCES = (1, 2, 4)
FAULTS = {"loss": 0.05, "duplicate": 0.05, "reorder": 0.05}


def plan(effort: str) -> dict[str, Any]:
    """Hosts, layers and repeats of an effort."""
    if effort not in EFFORTS:
        raise UsageError(f"effort is {effort!r}.{did_you_mean(effort, list(EFFORTS))}")
    return EFFORTS[effort]


def datagram_cost_s(dim: int, *, datagrams: int = COST_DATAGRAMS) -> float:
    """Processor seconds of one datagram at the switch: received and merged, or sent.

    Measured over a loopback socket with the switch's own code; eight hosts, so that seven of eight
    datagrams are merged and one completes a result.
    """
    wire = Wire(("127.0.0.1", 0), rate_bytes_s=None)
    here = wire.socket.getsockname()
    node = TreeNode(8, parent=None, children=range(8), contributes=False, machine=MACHINE)
    parts = [
        Packet(PART, i % 8, 0, 0, 150, i // 8, 0, bytes(dim)).encode() for i in range(datagrams)
    ]
    handled = 0
    try:
        start_s = time.process_time()
        for data in parts:
            wire.socket.sendto(data, here)  # the sender's share of the cost is in it too
            arrived = wire.take()
            for _, packet in node.receive(decode(arrived or data)):
                wire.socket.sendto(packet.encode(), here)
                wire.take()
                handled += 1
            handled += 1
        return (time.process_time() - start_s) / handled
    finally:
        wire.socket.close()


def fitting_link(cost_s: float, *, hosts: int, dim: int) -> Link:
    """A link so slow that a frame on it takes five times what the switch needs for its vector.

    The switch receives and sends ``hosts`` datagrams per vector; ``SPARE`` is added.
    """
    vector_s = 2 * hosts * cost_s
    rate_bit_s = 8 * frame_bytes(dim) / (LINK_OVER_CPU * SPARE * vector_s)
    return Link(round(rate_bit_s, -3), mtu_bytes=MTU_BYTES, queue_s=QUEUE_S, whole_packets=True)


def calibrate(
    *, heads: int, dim: int, effort: str, kind: str = "auto", report: Callable[[str], None] = print
) -> dict[str, Any]:
    """The machine's cost per datagram, the link that fits, and layers of two hosts on it.

    Returns plain data: ``cost_s``, ``link`` (fields of Link), ``kind``, ``why``, ``points``
    (bytes on the busiest link per layer, seconds per layer).
    """
    wanted = plan(effort)
    cost_s = datagram_cost_s(dim)
    link = fitting_link(cost_s, hosts=max(wanted["hosts"]), dim=dim)
    report(f"  {1e6 * cost_s:.0f} us per datagram, so links of {link.describe()}")
    jobs = [
        Job(strategy="gather", hosts=2, layers=8, heads=heads, dim=dim, sequences=n)
        for n in CALIBRATION_SEQUENCES for _ in range(2)
    ]  # fmt: skip
    with open_hosts(3, link=link, kind=kind) as hosts:
        runs = run_jobs(hosts, jobs)
        found = {"kind": hosts.kind, "why": hosts.why}
    points = [[layer_bytes(r.job), r.step_s / r.job.layers] for r in runs]
    return {"cost_s": cost_s, "link": asdict(link), "points": points, **found}


def layer_bytes(job: Job) -> int:
    """Frames' bytes that a layer puts on the busiest link."""
    return busiest_load(job.strategy, hosts=job.hosts) * job.layer_vectors * frame_bytes(job.dim)


def fitted(calibration: Mapping[str, Any]) -> MessageCost:
    """Seconds of a layer by the bytes on its busiest link, from two hosts."""
    return fit_message_cost([(size, seconds) for size, seconds in calibration["points"]])


def strategy_jobs(effort: str, *, heads: int, dim: int) -> list[Job]:
    """One decode step of the model for every strategy and number of hosts."""
    wanted = plan(effort)
    return [
        Job(strategy=s, hosts=n, layers=wanted["layers"], heads=heads, dim=dim, remind_s=30.0)
        for n in wanted["hosts"] for s in STRATEGIES
    ]  # fmt: skip


def fault_jobs(*, heads: int, dim: int, seed: int = 0) -> list[Job]:
    """Steps with 5 % loss, 5 % doubled and 5 % reordered datagrams."""
    return [
        Job(strategy=s, hosts=4, layers=3, heads=heads, dim=dim, remind_s=0.3, seed=seed, **FAULTS)
        for s in STRATEGIES
    ]  # fmt: skip


def run_steps(
    calibration: Mapping[str, Any] | None, *, effort: str, heads: int, dim: int, seed: int = 0,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:  # fmt: skip
    """All strategies on all numbers of hosts, in turns, then the steps with faults.

    Returns plain data: ``rows`` (one per strategy, hosts and repeat), ``faults``. Raises
    UnmeasuredError without a calibration.
    """
    if not calibration:
        raise UnmeasuredError("the links were not calibrated")
    wanted, link = plan(effort), Link(**calibration["link"])
    jobs = strategy_jobs(effort, heads=heads, dim=dim)
    turns = [
        job for turn in range(wanted["repeats"]) for job in jobs[:: 1 if turn % 2 == 0 else -1]
    ]
    faulty = fault_jobs(heads=heads, dim=dim, seed=seed)
    with open_hosts(max(wanted["hosts"]) + 1, link=link, kind=calibration["kind"]) as hosts:
        runs = run_jobs(hosts, [*turns, *faulty], report=report)
    return {
        "rows": [_row(one, link) for one in runs[: len(turns)]],
        "faults": [_row(one, link) | _injected(one) for one in runs[len(turns) :]],
    }


def _row(one: StepRun, link: Link) -> dict[str, Any]:
    return {
        **one.row(), "link_s": link_s(one.job, link=link), "layers": one.job.layers,
        "layer_bytes": layer_bytes(one.job), "link_over_cpu": one.link_over_cpu(link),
        "cpu_us": 1e6 * (one.merging.cpu_per_datagram_s or 0.0),
    }  # fmt: skip


def _injected(one: StepRun) -> dict[str, int]:
    return {name: sum(getattr(n, name) for n in one.nodes)
            for name in ("lost", "doubled", "reordered")}  # fmt: skip


def step_table(rows: Sequence[Mapping[str, Any]], cost: MessageCost) -> list[dict[str, Any]]:
    """Median measured step beside both predictions: the link's rate alone, and the fitted curve."""
    groups: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["hosts"], row["strategy"]), []).append(row)
    table = []
    for (hosts, strategy), group in groups.items():
        times = [row["step_s"] for row in group]
        median_s = statistics.median(times)
        fitted_s = group[0]["layers"] * cost.seconds(group[0]["layer_bytes"])
        table.append({
            "hosts": hosts, "strategy": strategy, "sent_bytes": group[0]["sent_bytes"],
            "received_bytes": group[0]["received_bytes"], "step_s": median_s,
            "link_s": group[0]["link_s"], "fitted_s": fitted_s,
            "error": median_s / fitted_s - 1, "noise": (max(times) - min(times)) / median_s,
        })  # fmt: skip
    return table


def ratio(table: Sequence[Mapping[str, Any]], strategy: str, hosts: int) -> float:
    """Step time of a strategy over that of the switch, same number of hosts."""
    found = {(r["hosts"], r["strategy"]): r["step_s"] for r in table}
    return found[hosts, strategy] / found[hosts, "in-network"]
