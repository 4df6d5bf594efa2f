"""Loss, duplication and reordering never corrupt a result; nothing is sent beyond the formula."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.aggregate import Aggregator, Outcome, TableRows
from turbo_lab.turbo.nodes import TreeNode
from turbo_lab.turbo.packet import PART, RESULT, Packet, datagram_bytes
from turbo_lab.turbo.strategies import (
    STRATEGIES,
    build_node,
    busiest_load,
    longest_way,
    nodes_of,
    payload_bytes,
)
from turbo_lab.turbo.tables import TableMachine

from .lossy import DIM, LossyNet, own_parts

MACHINE = TableMachine()
STREAMS = [(sequence, layer, head) for sequence in (0, 7) for layer in (0, 1) for head in (0, 1)]
Content = tuple[bytes, int]


def nodes(strategy: str, hosts: int) -> dict:
    return {n: build_node(strategy, n, hosts=hosts, machine=MACHINE)
            for n in nodes_of(strategy, hosts=hosts)}  # fmt: skip


def merged(parts: list[Content]) -> Content:
    """Parts merged one by one by the vectorised machine, in this order."""
    values = np.stack([np.frombuffer(p[0], dtype=np.int8) for p in parts]).astype(np.int16)
    got, gamma = MACHINE.merge(values, np.array([p[1] for p in parts]))
    return got.astype(np.int8).tobytes(), int(gamma)


def any_order(parts: list[Content]) -> set[Content]:
    """Every result that one node can have, whatever the order of arrival."""
    return {merged(list(order)) for order in itertools.permutations(parts)}


def tree_of_four(p: list[Content]) -> set[Content]:
    """Host 0 merges itself with 1 (which holds 3) and 2."""
    return {
        result
        for below in any_order([p[1], p[3]])
        for result in any_order([below, p[2], p[0]])
    }  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from([0.0, 0.05, 0.3]))
def test_every_result_holds_every_part_exactly_once(strategy: str, seed: int, loss: float) -> None:
    """Bit for bit one of the results that some order of arrival gives; equal on all hosts."""
    hosts, net_nodes = 4, nodes(strategy, 4)
    net = LossyNet(net_nodes, loss=loss, double=0.1, reorder=True, seed=seed)
    for step in range(2):
        parts = own_parts(hosts, STREAMS, step, seed=seed)
        results = net.step(parts, step)
        for stream in STREAMS:
            each = [parts[host][stream] for host in range(hosts)]
            allowed = tree_of_four(each) if strategy == "tree" else any_order(each)
            if strategy == "ring":
                allowed = {merged(each)}
            got = {results[host][stream] for host in range(hosts)}
            assert len(got) == 1 and got <= allowed
    if loss == 0.3:
        assert net.lost and sum(n.repeated for n in net_nodes.values())


@settings(max_examples=40)
@given(st.sampled_from(STRATEGIES), st.sampled_from([2, 3, 5, 8, 16]), st.integers(0, 999))
def test_five_percent_loss_ends_well_for_any_number_of_hosts(strategy, hosts, seed) -> None:
    net = LossyNet(nodes(strategy, hosts), loss=0.05, double=0.05, reorder=True, seed=seed)
    for step in range(2):
        results = net.step(own_parts(hosts, STREAMS[:2], step, seed=seed), step)
        assert all(len({r[s] for r in results.values()}) == 1 for s in STREAMS[:2])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("hosts", [2, 3, 4, 8, 11])
def test_sent_payload_is_the_formula_to_the_byte(strategy: str, hosts: int) -> None:
    made = nodes(strategy, hosts)
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    flying = []

    def note(source: int, sends: list) -> None:
        for target, packet in sends:
            sent[source] += len(packet.encode())
            received[target] += len(packet.encode())
            flying.append((target, packet))

    parts = own_parts(hosts, STREAMS, 0, seed=1)
    for host, own in parts.items():
        for stream, (values, gamma) in own.items():
            note(host, made[host].offer(stream, 0, values=values, gamma=gamma))
    while flying:
        target, packet = flying.pop(0)
        note(target, made[target].receive(packet))
    for number in made:
        want = payload_bytes(strategy, hosts=hosts, node=number, vectors=len(STREAMS), dim=DIM)
        assert (sent[number], received[number]) == want
    busiest = max(max(sent[h], received[h]) for h in range(hosts))
    assert busiest == busiest_load(strategy, hosts=hosts) * len(STREAMS) * datagram_bytes(DIM)


def test_what_the_strategies_load_their_links_with() -> None:
    table = {s: [busiest_load(s, hosts=n) for n in (2, 4, 8, 16)] for s in STRATEGIES}
    assert table == {
        "gather": [1, 3, 7, 15], "ring": [1, 3, 7, 15], "tree": [1, 2, 3, 3],
        "in-network": [1, 1, 1, 1],
    }  # fmt: skip
    ways = {s: [longest_way(s, hosts=n) for n in (2, 4, 8, 16)] for s in STRATEGIES}
    assert ways["ring"] == [1, 3, 7, 15] and ways["in-network"] == [2, 2, 2, 2]
    assert ways["tree"] == [2, 4, 6, 8]
    with pytest.raises(UsageError, match="in-network"):
        busiest_load("in-net", hosts=2)


def test_a_lost_result_is_sent_again_and_merged_only_once() -> None:
    switch = build_node("in-network", 2, hosts=2, machine=MACHINE)
    host = build_node("in-network", 0, hosts=2, machine=MACHINE)
    stream = (0, 0, 0)
    ((_, own),) = host.offer(stream, 0, values=bytes(DIM), gamma=9)
    assert switch.receive(own) == [] == switch.receive(own)  # doubled: not merged again
    other = Packet(PART, 1, 0, 0, 9, 0, 0, bytes(DIM))
    results = switch.receive(other)
    assert [target for target, _ in results] == [0, 1]
    again = switch.receive(own)  # host 0 has not got it
    assert again == [results[0]] and again[0][1].gamma == 9 + MACHINE.addends[0]
    assert host.remind(stream, 0) == [(2, own)]
    assert host.receive(again[0][1]) == [] and host.results[stream][0] == 0
    assert host.receive(again[0][1]) == []


def test_a_late_packet_of_an_old_step_is_stale() -> None:
    one = Aggregator(MACHINE, contributors=2)
    part = {"values": bytes(DIM), "gamma": 1}
    assert one.add((0, 0, 0), 4, contributor=0, **part) is Outcome.WAITING
    assert one.bitmap((0, 0, 0), 4) == 0b01
    assert one.add((0, 0, 0), 4, contributor=0, **part) is Outcome.REPEATED
    assert one.add((0, 0, 0), 4, contributor=1, **part) is Outcome.COMPLETE
    assert one.add((0, 0, 0), 5, contributor=1, **part) is Outcome.WAITING
    assert one.add((0, 0, 0), 4, contributor=1, **part) is Outcome.REPEATED
    assert one.add((0, 0, 0), 5, contributor=0, **part) is Outcome.COMPLETE
    assert one.add((0, 0, 0), 4, contributor=0, **part) is Outcome.STALE
    assert one.slots == 1
    with pytest.raises(UsageError, match="no contributor 2"):
        one.add((0, 0, 0), 6, contributor=2, **part)


def test_two_levels_of_switches_repeat_a_part_that_was_lost_between_them() -> None:
    def switch(number: int, parent: int | None, children: list[int]) -> TreeNode:
        return TreeNode(
            number, parent=parent, children=children, contributes=False, machine=MACHINE
        )

    leaf, spine = switch(8, 9, [0, 1]), switch(9, None, [8])
    parts = [Packet(PART, host, 0, 0, 5, 0, 0, bytes(DIM)) for host in (0, 1)]
    assert leaf.receive(parts[0]) == []
    ((target, lost),) = leaf.receive(parts[1])
    assert target == 9
    assert leaf.receive(parts[0]) == [(9, lost)]  # host 0 asks again: passed on
    ((_, result),) = spine.receive(lost)
    assert [t for t, _ in leaf.receive(result)] == [0, 1]


def test_packets_of_strangers_are_dropped() -> None:
    host = build_node("in-network", 0, hosts=2, machine=MACHINE)
    for stranger in (
        Packet(RESULT, 1, 0, 0, 0, 0, 0, bytes(DIM)),  # not its parent
        Packet(PART, 1, 0, 0, 0, 0, 0, bytes(DIM)),  # not its child
    ):
        assert host.receive(stranger) == [] and not host.results


@given(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 255))
def test_rows_of_tables_are_the_machine_bit_for_bit(seed: int, gamma: int, arrived: int) -> None:
    rows, rng = TableRows(MACHINE), np.random.default_rng(seed)
    mine, theirs = rng.integers(-128, 128, (2, 32)).astype(np.int8)
    got, top = rows.merge(rows.read(mine.tobytes()), gamma, theirs.tobytes(), arrived)
    want, want_top = MACHINE.merge_pair(
        theirs.astype(np.int16), np.int16(arrived), mine.astype(np.int16), np.int16(gamma)
    )
    np.testing.assert_array_equal(got, want)
    assert top == int(want_top)


def test_packets_carry_eight_bits() -> None:
    with pytest.raises(UsageError, match="8-bit values"):
        TableRows(TableMachine(value_bits=4))
