"""Runs of the network lesson: each opens its hosts, measures, and returns plain data.

``Wire.facts`` says which kind of hosts that is. What paced hosts cannot show raises
UnmeasuredError.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.network import experiments
from turbo_lab.network.link import Link, parse_rate
from turbo_lab.network.links import open_hosts
from turbo_lab.parallel.grid import host_of_ranks, placed
from turbo_lab.parallel.launch import launch
from turbo_lab.parallel.survey import survey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turbo_lab.network.hosts import Hosts

Rate = str | float | None
SMALL_MTU = 1400
DEADLINE_S = 120.0


@dataclass(frozen=True)
class Wire:
    """Which hosts the lesson's runs use: the link's rate and the kind (auto, namespaces, paced)."""

    rate: Rate = "1gbit"
    kind: str = "auto"

    @property
    def link(self) -> Link:
        """The link of every host."""
        return Link(None if self.rate is None else parse_rate(self.rate))

    @contextmanager
    def hosts(self, count: int, **link: Any) -> Iterator[Hosts]:
        """Open ``count`` hosts; ``link`` changes fields of their link."""
        changed = Link(**{**asdict(self.link), **link})
        with open_hosts(count, link=changed, kind=self.kind) as opened:
            yield opened

    def facts(self) -> dict[str, str]:
        """Kind of hosts, why this kind, and the link in words."""
        with self.hosts(2) as hosts:
            return {"kind": hosts.kind, "why": hosts.why, "link": hosts.link.describe()}


def surveyed(wire: Wire, **work: Any) -> list[dict[str, Any]]:
    """``parallel.survey`` with one rank on each host."""
    with wire.hosts(max(work.get("ranks", (4,)))) as hosts:
        rows = survey(place=placed(hosts, list(range(hosts.count))), **work)
    return [row.to_dict() for row in rows]


def one_stream(wire: Wire, *, payload_bytes: int) -> dict[str, Any]:
    """Payload rate of one TCP connection between two hosts, in bit/s, and retransmits."""
    with wire.hosts(2) as hosts:
        found = experiments.point_to_point(hosts, payload_bytes=payload_bytes)
    return {"rate_bit_s": found.rate_bit_s, "retransmits": found.retransmits}


def on_pair(wire: Wire, work: str, **arguments: Any) -> list[Any]:
    """``module:function`` on two ranks, one per host; what each returned."""
    with wire.hosts(2) as hosts:
        run = launch(
            work, ranks=2, threads=1, place=placed(hosts, [0, 1]), arguments=arguments,
            deadline_s=DEADLINE_S,
        )  # fmt: skip
    return list(run.results)


def slowest(results: Sequence[Mapping[str, Sequence[float]]], name: str) -> list[float]:
    """Samples of the rank that was slowest in each repeat."""
    return [max(row) for row in zip(*(result[name] for result in results), strict=True)]


def placement(wire: Wire, how: str, *, grid: Mapping[str, Any]) -> dict[str, Any]:
    """A TP x PP grid on two hosts, placed as ``host_of_ranks`` says.

    Returns ``s`` of the timed pass and ``link_bytes`` that both hosts sent in it and in the equal
    pass before it (rendezvous included). Raises UnmeasuredError on paced hosts, whose connections
    are slowed inside a host too.
    """
    order = host_of_ranks(how, tensor=grid["tensor"], stages=grid["stages"], hosts=2)
    with wire.hosts(2) as hosts:
        if hosts.kind != "namespaces":
            raise UnmeasuredError(
                f"{hosts.kind} hosts slow every connection, also inside a host: both placements "
                "would be the same"
            )
        before = [hosts.counters(host) for host in (0, 1)]
        run = launch(
            "turbo_lab.parallel.grid:grid_job", ranks=len(order), threads=1,
            place=placed(hosts, order), arguments=dict(grid), deadline_s=DEADLINE_S,
        )  # fmt: skip
        sent = [hosts.counters(h).since(b).sent_bytes for h, b in enumerate(before)]
    return {"s": max(result["s"] for result in run.results), "link_bytes": sum(sent)}


def compression_at(wire: Wire, rates: Sequence[Rate], **work: Any) -> list[dict[str, Any]]:
    """Every form at every link rate: median seconds of the slower rank, error, bytes sent."""
    rows = []
    for rate in rates:
        results = on_pair(
            Wire(rate, wire.kind), "turbo_lab.parallel.compressed:compression_job", **work
        )
        forms = results[0]
        for form in forms:
            both = [result[form] for result in results]
            rows.append({
                "rate_bit_s": None if rate is None else parse_rate(rate), "form": form,
                "seconds": statistics.median(slowest(both, "total_s")),
                "error": both[0]["error"], "sent_bytes": both[0]["sent_bytes"],
            })  # fmt: skip
    return rows


def coding_s(wire: Wire, **work: Any) -> dict[str, float]:
    """Seconds of coding and decoding per form, both ranks at work, nothing sent."""
    results = on_pair(
        wire, "turbo_lab.parallel.compressed:compression_job", with_messages=False, **work
    )
    return {
        form: statistics.median(slowest([result[form] for result in results], "coding_s"))
        for form in results[0]
    }


def needed(found: Any, what: str) -> Any:
    """``found`` itself. Raises UnmeasuredError where a run gave nothing (its reason is printed)."""
    if found is None:
        raise UnmeasuredError(f"{what} did not run here; the reason is printed above")
    return found


def gains(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """(bandwidth of the plain all-reduce in bit/s, time plain over compressed) by form and rate."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["form"] != "fp32":
            plain = _plain(rows, row)
            place = 8 * plain["sent_bytes"] / plain["seconds"]
            found.setdefault(row["form"], []).append((place, plain["seconds"] / row["seconds"]))
    return {form: sorted(points) for form, points in found.items()}


def gain_at(rows: Sequence[Mapping[str, Any]], form: str, *, rate_bit_s: float) -> float:
    """Gain on the link of one nominal rate. Raises UnmeasuredError where that was not run."""
    for row in rows:
        if row["form"] == form and row["rate_bit_s"] == rate_bit_s:
            return _plain(rows, row)["seconds"] / row["seconds"]
    raise UnmeasuredError(f"{form} was not run on a link of {rate_bit_s:g} bit/s")


def crossing(points: Sequence[tuple[float, float]]) -> float:
    """The rate at which a gain falls through 1, between two measured ones (logarithmic in both).

    Raises UnmeasuredError where it does not within what was measured.
    """
    for (x0, y0), (x1, y1) in itertools.pairwise(sorted(points)):
        if y0 >= 1 > y1:
            share = math.log(y0) / (math.log(y0) - math.log(y1))
            return x0 * (x1 / x0) ** share
    told = "above" if points and points[0][1] >= 1 else "below"
    raise UnmeasuredError(f"the gain is {told} 1 at every rate that was measured")


def _plain(rows: Sequence[Mapping[str, Any]], like: Mapping[str, Any]) -> Mapping[str, Any]:
    """The uncompressed run at the same rate."""
    same = (r for r in rows if r["form"] == "fp32" and r["rate_bit_s"] == like["rate_bit_s"])
    return next(same)


def wrong_mtu(wire: Wire) -> dict[str, Any]:
    """What passes between two hosts, and then when one switch port takes smaller packets than they.

    Returns for ``healthy`` and ``broken``: the largest packet that passed, and seconds of a small
    and a large transfer (None: it hung).
    """
    with wire.hosts(2, whole_packets=True) as hosts:
        _need_packets(hosts)
        healthy = experiments.probe_mtu(hosts)
        hosts.shape(1, hosts.link, switch_mtu_bytes=SMALL_MTU)
        broken = experiments.probe_mtu(hosts)
    return {
        name: {"path_mtu_bytes": one.path_mtu_bytes, "small_s": one.small_s, "large_s": one.large_s,
               "vanished_bytes": list(one.vanished_bytes)}
        for name, one in (("healthy", healthy), ("broken", broken))
    }  # fmt: skip


def many_to_one(wire: Wire, *, senders: int, bytes_each: int, queue_s: float) -> dict[str, Any]:
    """Several hosts send to one at once, past a short queue; and one of them alone, as control."""
    with wire.hosts(senders + 1, whole_packets=True, queue_s=queue_s) as hosts:
        _need_packets(hosts)
        alone = experiments.point_to_point(
            hosts, source=1, target=0, payload_bytes=senders * bytes_each
        )
        found = experiments.incast(hosts, bytes_each=bytes_each)
    return {
        "seconds": found.seconds, "ideal_s": found.ideal_s, "retransmits": found.retransmits,
        "dropped_packets": found.dropped_packets, "uneven": found.slowest_over_fastest,
        "alone_s": alone.seconds, "alone_retransmits": alone.retransmits,
    }  # fmt: skip


def beside_others(wire: Wire, *, payload_bytes: int) -> dict[str, float]:
    """Seconds of one transfer alone and beside a longer one to the same host."""
    with wire.hosts(3) as hosts:
        found = experiments.cross_traffic(hosts, payload_bytes=payload_bytes)
    return {"alone_s": found.alone.seconds, "beside_s": found.beside.seconds}


def _need_packets(hosts: Hosts) -> None:
    if hosts.kind != "namespaces":
        raise UnmeasuredError(
            f"{hosts.kind} hosts have no packets of their own: none can vanish, be dropped or sent "
            "again"
        )
