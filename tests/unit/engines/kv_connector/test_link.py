"""Sender and fetcher over real sockets, whole and broken."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turbo_lab.core.errors import TurboLabError
from turbo_lab.engines.kv_connector.fetch import Wanted, fetch
from turbo_lab.engines.kv_connector.journal import journal, read_journal
from turbo_lab.engines.kv_connector.sender import KvSender
from turbo_lab.engines.kv_connector.store import Geometry, KvStore
from turbo_lab.engines.kv_connector.wire import framing_bytes, pack
from turbo_lab.network.link import Link
from turbo_lab.network.links import open_hosts

BLOCK, LAYERS, SHAPE = 4, ("l0", "l1", "l2"), (2, 4, 32)
GEOMETRY = Geometry(LAYERS, "float32", SHAPE, BLOCK)
BLOCK_BYTES = 2 * 4 * 32 * 4


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


@pytest.fixture
def sender(kit: Any, log: Path) -> Iterator[KvSender]:
    one = KvSender(KvStore(limit_bytes=1 << 20), note=journal(log), idle_s=30.0).start()
    one.store.put(kit.prefix("p"))
    yield one
    one.close()


def wanted(sender: KvSender, **changes: Any) -> Wanted:
    host, port = sender.address
    base = Wanted("r1", host, port, "p", 0, 3, GEOMETRY, deadline_s=60.0, idle_s=30.0)
    return replace(base, **changes)


def test_blocks_arrive_and_bytes_are_the_formula(kit: Any, sender: KvSender, log: Path) -> None:
    cache = kit.Cache()
    found = fetch(wanted(sender), write=cache.write)
    assert found.reason is None and found.blocks == 3
    for block, layers in enumerate(kit.prefix("p").blocks):
        for layer, data in enumerate(layers):
            assert np.array_equal(cache.held[block, layer], data)
    assert found.payload_bytes == 3 * len(LAYERS) * BLOCK_BYTES == wanted(sender).payload_bytes
    assert 0 < found.framing_bytes < found.payload_bytes
    kit.wait_for(lambda: read_journal(log), what="the sender's line")
    (line,) = read_journal(log)
    assert (line["event"], line["payload_bytes"]) == ("sent", found.payload_bytes)
    assert line["framing_bytes"] == found.framing_bytes


def test_a_part_of_a_prefix_and_smaller_formats(kit: Any, sender: KvSender) -> None:
    for wire, width in (("fp16", 2.0), ("int8", 8.25 / 8)):
        cache = kit.Cache()
        found = fetch(wanted(sender, first=1, end=3, wire=wire), write=cache.write)
        assert (found.reason, found.blocks) == (None, 2)
        assert found.payload_bytes == 2 * len(LAYERS) * 2 * 4 * 32 * width
        got = cache.held[0, 0].view(np.float32)
        due = kit.prefix("p").blocks[1][0].view(np.float32)
        assert np.abs(got - due).max() < 0.02 and np.any(got != due)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"prefix": "other"}, "does not hold this prefix"),
        ({"end": 4}, "blocks 0 to 4 were asked for; the prefix has 3"),
        ({"wire": "raw", "geometry": replace(GEOMETRY, dtype="float16")}, "dtype is float32"),
        ({"geometry": replace(GEOMETRY, layers=("x",))}, "name their layers differently"),
        ({"port": 1}, "no connection to 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_fetched_has_a_reason(
    kit: Any, sender: KvSender, changes: dict, reason: str
) -> None:
    found = fetch(wanted(sender, **changes), write=kit.Cache().write)
    assert found.blocks == 0 and reason in (found.reason or "")


def total_bytes(kit: Any, sender: KvSender) -> int:
    found = fetch(wanted(sender), write=kit.Cache().write)
    request = framing_bytes({"kind": "fetch", "prefix": "p", "first": 0, "end": 3, "wire": "raw",
                             "request": "r1"})  # fmt: skip
    return found.payload_bytes + found.framing_bytes - request


@pytest.mark.parametrize("spoiled", [False, True])
def test_a_cut_or_spoiled_stream_leaves_a_valid_shorter_prefix(
    kit: Any, sender: KvSender, spoiled: bool
) -> None:
    total = total_bytes(kit, sender)
    reasons = set()
    for place in np.linspace(0, total - 1, 12).astype(int):
        most, spoil = (None, int(place)) if spoiled else (int(place), None)
        relay, cache = kit.Relay(sender.address, most=most, spoil=spoil), kit.Cache()
        host, port = relay.door.getsockname()
        found = fetch(wanted(sender, host=host, port=port), write=cache.write)
        relay.door.close()
        assert found.reason is not None
        reasons.add(found.reason)
        for block in range(found.blocks):
            for layer in range(len(LAYERS)):
                assert np.array_equal(
                    cache.held[block, layer], kit.prefix("p").blocks[block][layer]
                )
    texts = "\n".join(reasons)
    assert ("the digest does not fit" if spoiled else "closed the connection") in texts


def test_a_producer_that_stops_in_the_middle_meets_the_idle_limit(kit: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        base = Wanted("r", host, port, "p", 0, 1, GEOMETRY, deadline_s=30.0, idle_s=0.05)
        assert fetch(base, write=kit.Cache().write).reason == "no byte for 0.05 s"
        late = fetch(replace(base, deadline_s=0.05, idle_s=30.0), write=kit.Cache().write)
        assert late.reason == "the transfer passed its deadline"


def test_a_consumer_that_leaves_does_not_hold_the_sender(
    kit: Any, sender: KvSender, log: Path
) -> None:
    sender.store.put(kit.prefix("big", blocks=60))
    with socket.create_connection(sender.address) as sock:
        head, _ = pack({"prefix": "big", "first": 0, "end": 60, "wire": "raw"})
        sock.sendall(head)
        sock.recv(1000)
    kit.wait_for(lambda: read_journal(log), what="the sender's line")
    assert read_journal(log)[0]["event"] in ("send_failed", "sent")
    assert fetch(wanted(sender), write=kit.Cache().write).reason is None


def test_a_paced_link_holds_the_transfer_to_its_rate(kit: Any, sender: KvSender) -> None:
    size = total_bytes(kit, sender)
    rate_bit_s = 8 * size / 0.5
    with open_hosts(2, link=Link(rate_bit_s), kind="paced") as hosts:
        host, port = hosts.route(1, 0, port=sender.address[1])
        found = fetch(wanted(sender, host=host, port=port), write=kit.Cache().write)
    assert found.reason is None
    assert found.seconds > 0.25  # a free link takes milliseconds; above, a busy machine may add


def test_a_taken_port_is_named(sender: KvSender) -> None:
    with pytest.raises(TurboLabError, match="cannot listen on"):
        KvSender(sender.store, note=journal(None), port=sender.address[1]).start()
