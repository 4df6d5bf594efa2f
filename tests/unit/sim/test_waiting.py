"""Queues of a replica: who is next, who is taken out, and that neither changes whose turn it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.sim.job import Job
from turbo_lab.sim.waiting import POLICIES, FairToTenants, make_queue
from turbo_lab.workload.trace_request import TraceRequest


def job(index: int, tenant: str = "", *, priority: int = 0, admitted: bool = False) -> Job:
    one = Job(TraceRequest(0.01 * index, 10, 5, tenant=tenant, priority=priority), index)
    one.admitted = admitted
    return one


def tenants(queue, count: int) -> str:
    return "".join(queue.pop().request.tenant for _ in range(count))


JOBS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.booleans()), min_size=1, max_size=12
)


@pytest.mark.parametrize("policy", [*POLICIES])
@given(rows=JOBS)
def test_the_one_taken_out_is_the_last_that_has_computed_nothing(policy: str, rows) -> None:
    jobs = [job(i, t, priority=p, admitted=a) for i, (t, p, a) in enumerate(rows)]
    queue = make_queue(policy)
    for one in jobs:
        queue.push(one)
    order = {"priority": lambda j: (j.request.priority, j.index)}.get(policy, lambda j: j.index)
    fresh = [one for one in jobs if not one.admitted]
    assert queue.withdraw() is max(fresh, key=order, default=None)
    left = [queue.pop() for _ in range(len(queue))]
    assert len(left) == len(jobs) - bool(fresh) and not queue
    if policy != "fair":
        assert left == sorted(left, key=order)


def test_taking_one_out_does_not_change_whose_turn_it_is() -> None:
    queue = FairToTenants()
    for index in range(8):
        queue.push(job(index, "aaaabbbb"[index]))
    assert tenants(queue, 3) == "aba"  # a got two requests, b one
    assert queue.withdraw().index == 7
    assert tenants(queue, 4) == "baba"


def test_a_tenant_that_was_idle_cannot_claim_the_past_of_an_empty_queue() -> None:
    queue = FairToTenants()
    queue.push(job(0, "b"))
    queue.pop()
    for index in range(1, 6):  # a is served alone, and nobody waits in between
        queue.push(job(index, "a"))
        queue.pop()
    for index in range(6, 14):
        queue.push(job(index, "bbbbaaaa"[index - 6]))
    assert tenants(queue, 8) == "abababab"


def test_one_that_was_preempted_goes_first_in_its_line_and_pays_once() -> None:
    queue = FairToTenants()
    for index in range(4):
        queue.push(job(index, "aabb"[index]))
    first = queue.pop()
    first.preemptions = 1
    queue.push_back(first)
    assert tenants(queue, 1) == "b"  # a has paid for the one that returned
    assert queue.pop() is first
    assert tenants(queue, 2) == "ab"


def test_a_preempted_tenant_was_not_idle_so_its_counter_stays() -> None:
    queue = FairToTenants()
    for index in range(5):
        queue.push(job(index, "zbbbb"[index]))
    popped = [queue.pop() for _ in range(4)]  # b, z, b, b: z got a third of what b got
    back = next(one for one in popped if one.request.tenant == "z")
    back.preemptions = 1
    queue.push_back(back)
    queue.push(job(5, "z"))
    assert tenants(queue, 3) == "zzb"
