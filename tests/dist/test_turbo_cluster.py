"""Real datagrams between hosts and a switch that merges: right, to the byte, and under faults."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.network.links import Link, open_hosts
from turbo_lab.turbo.cluster import ARP_BYTES, StepRun, run_jobs
from turbo_lab.turbo.packet import datagram_bytes
from turbo_lab.turbo.strategies import STRATEGIES, payload_bytes
from turbo_lab.turbo.work import Job

LINK = Link(2e6, mtu_bytes=576, queue_s=2.0, whole_packets=True)
SIZE = {"hosts": 3, "layers": 2, "heads": 4, "dim": 32}
FAULTS = {"loss": 0.05, "duplicate": 0.05, "reorder": 0.1, "remind_s": 0.1, "sequences": 4}
CLOSE_STEPS = 8  # a part that is missing or merged twice moves values by tens


def run(kind: str, jobs: list[Job]) -> list[StepRun]:
    with open_hosts(4, link=LINK, kind=kind) as hosts:
        runs = run_jobs(hosts, jobs)
        assert {r.kind for r in runs} == {kind}
    return runs


def check(runs: list[StepRun]) -> None:
    for one in runs:
        assert one.right(), one.row()
        assert max(n.worst_steps for n in one.hosts) < CLOSE_STEPS


@pytest.mark.net
@pytest.mark.usefixtures("namespaces_allowed")
def test_namespaces_carry_the_formula_and_survive_faults() -> None:
    plain = [Job(strategy=s, remind_s=30.0, seed=3, **SIZE) for s in STRATEGIES]
    faulty = [Job(strategy=s, steps=2, seed=4, **SIZE, **FAULTS) for s in ("ring", "in-network")]
    runs = run("namespaces", [*plain, *faulty])
    check(runs)
    for one in runs[:4]:
        vectors = one.job.step_vectors
        for node in one.nodes:
            want = payload_bytes(one.job.strategy, hosts=3, node=node.node, vectors=vectors, dim=32)
            assert (node.sent_bytes, node.received_bytes) == want
            # Beyond datagrams and headers only questions for addresses, two per neighbour.
            assert node.counted.sent_packets >= node.sent_bytes // datagram_bytes(32)
            assert abs(node.uncounted_bytes) <= 6 * ARP_BYTES
        assert not one.repeated
    for one in runs[4:]:
        assert one.repeated and sum(n.lost for n in one.nodes) and sum(n.doubled for n in one.nodes)
        assert sum(n.reordered for n in one.nodes)
        assert not one.payload_is_formula()


def test_paced_hosts_do_the_same_without_any_privilege() -> None:
    runs = run("paced", [
        Job(strategy="in-network", remind_s=30.0, seed=1, **SIZE),
        Job(strategy="tree", steps=2, seed=2, **SIZE, **FAULTS),
    ])  # fmt: skip
    check(runs)
    assert runs[0].payload_is_formula() and runs[0].hosts[0].counted is None


def test_a_job_of_more_hosts_than_are_open_is_refused() -> None:
    with open_hosts(2, link=LINK, kind="paced") as hosts, pytest.raises(UsageError, match="open 4"):
        run_jobs(hosts, [Job(strategy="ring", **SIZE)])
    for wrong, said in (({"loss": 1.0}, "loss is 1.0"), ({"heads": 0}, "heads is 0"),
                        ({"strategy": "star"}, "no strategy 'star'")):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            Job(**{"strategy": "ring", **SIZE, **wrong})
