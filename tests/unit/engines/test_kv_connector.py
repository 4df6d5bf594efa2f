"""The KV connector without an engine: frames, formats, store, link, and both halves."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import TurboLabError, UsageError
from turbo_lab.engines.kv_connector.codec import GROUP, decode, encode, wire_bytes
from turbo_lab.engines.kv_connector.fetch import Fetched, Wanted, fetch
from turbo_lab.engines.kv_connector.journal import journal, read_journal
from turbo_lab.engines.kv_connector.scheduling import Load, Plan, SchedulerHalf
from turbo_lab.engines.kv_connector.sender import KvSender
from turbo_lab.engines.kv_connector.store import Geometry, KvStore, Prefix, prefix_key
from turbo_lab.engines.kv_connector.wire import WireError, framing_bytes, pack, unpack
from turbo_lab.engines.kv_connector.working import Limits, WorkerHalf
from turbo_lab.network.link import Link
from turbo_lab.network.links import open_hosts

BLOCK, LAYERS, SHAPE = 4, ("l0", "l1", "l2"), (2, 4, 32)
GEOMETRY = Geometry(LAYERS, "float32", SHAPE, BLOCK)
BLOCK_BYTES = 2 * 4 * 32 * 4
DTYPES = ("float32", "float16", "bfloat16")
json_values = st.one_of(st.integers(-(2**40), 2**40), st.text(max_size=12), st.booleans())
headers = st.dictionaries(st.text(max_size=8), json_values, max_size=5)


def reader(data: bytes) -> Any:
    view = memoryview(data)
    at = 0

    def read(count: int) -> bytes:
        nonlocal at
        if at + count > len(view):
            raise WireError("the other side closed the connection in mid-transfer")
        at += count
        return bytes(view[at - count : at])

    return read


@given(headers, st.binary(max_size=200))
def test_a_frame_comes_back_as_it_was(header: dict, payload: bytes) -> None:
    head, body = pack(header, payload)
    frame = unpack(reader(head + bytes(body)), most_payload_bytes=200)
    assert (frame.header, bytes(frame.payload)) == (header, payload)
    assert len(head) == framing_bytes(header)


@given(headers, st.binary(max_size=60), st.data())
def test_any_changed_bit_or_missing_end_is_an_error(
    header: dict, payload: bytes, data: Any
) -> None:
    head, body = pack(header, payload)
    whole = bytearray(head + bytes(body))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError):
        unpack(reader(bytes(whole)), most_payload_bytes=60)
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WireError):
        unpack(reader((head + bytes(body))[:end]), most_payload_bytes=60)


def test_a_payload_longer_than_due_is_refused_before_it_is_read() -> None:
    head, _ = pack({}, bytes(10))
    with pytest.raises(WireError, match="announces"):
        unpack(reader(head), most_payload_bytes=9)  # no payload follows, none is asked for


@given(
    st.sampled_from(DTYPES), st.integers(1, 3 * GROUP), st.integers(0, 2**32 - 1),
    st.floats(1e-3, 1e3),
)  # fmt: skip
def test_formats_cost_what_they_say_and_keep_what_they_promise(
    dtype: str, count: int, seed: int, size: float
) -> None:
    values = np.random.default_rng(seed).normal(size=count) * size
    stored = as_stored(values, dtype)
    held = as_values(stored, dtype)
    for wire in ("raw", "fp16", "int8"):
        sent = encode(stored, dtype=dtype, wire=wire)
        assert sent.nbytes == wire_bytes((count,), dtype=dtype, wire=wire)
        back = as_values(decode(sent, shape=(count,), dtype=dtype, wire=wire), dtype)
        error, most = np.abs(back - held), allowed_error(held, wire=wire)
        rounding = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
        assert (error <= most + rounding * (np.abs(held) + most) + 1e-7).all()


def allowed_error(held: np.ndarray, *, wire: str) -> np.ndarray:
    """Half a step of the format, and what rounding the scale to fp16 adds."""
    if wire == "raw":
        return np.zeros_like(held)
    if wire == "fp16":
        return 2.0**-11 * np.abs(held)
    starts = range(0, len(held), GROUP)
    steps = np.array([np.abs(held[start : start + GROUP]).max() / 127.5 for start in starts])
    each = np.repeat(steps, GROUP)[: len(held)]
    return 0.5 * each + 127.5 * (2.0**-11 * each + 2.0**-25)


def as_stored(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype(dtype).view(np.uint8)


def as_values(stored: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (stored.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return stored.view(dtype).astype(np.float32)


def test_unknown_formats_are_refused_with_the_allowed_ones() -> None:
    with pytest.raises(UsageError, match="Allowed: fp16, int8, raw"):
        wire_bytes((4,), dtype="float32", wire="int4")
    with pytest.raises(UsageError, match="KV dtype"):
        wire_bytes((4,), dtype="float64")
    with pytest.raises(UsageError, match="wanted are 16"):
        decode(np.zeros(3, np.uint8), shape=(4,), dtype="float32", wire="raw")


# The store


def prefix(name: str, blocks: int = 3, seed: int = 0) -> Prefix:
    numbers = np.random.default_rng(seed).normal(size=(blocks, len(LAYERS), 2 * 4 * 32))
    parts = numbers.astype(np.float32).view(np.uint8)
    return Prefix(name, GEOMETRY, tuple(tuple(layers) for layers in parts))


def test_the_store_pushes_out_what_was_unused_longest() -> None:
    size = prefix("a").size_bytes
    assert size == 3 * len(LAYERS) * BLOCK_BYTES
    store = KvStore(limit_bytes=2 * size)
    for name in ("a", "b"):
        store.put(prefix(name))
    assert store.get("a") is not None
    store.put(prefix("c"))
    assert [name in store for name in "abc"] == [True, False, True]
    store.put(prefix("large", blocks=7))
    assert "large" not in store and store.size_bytes == 2 * size
    with pytest.raises(UsageError, match="limit_bytes"):
        KvStore(limit_bytes=0)


def test_keys_name_the_tokens_and_the_model() -> None:
    keys = {prefix_key(t, model=m) for t in ([1, 2], [2, 1], [1, 2, 3]) for m in ("a", "b")}
    assert len(keys) == 6 and prefix_key([1, 2], model="a") in keys


# The link


class Cache:
    """An engine's cache as a dictionary."""

    geometry = GEOMETRY

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], np.ndarray] = {}

    def read(self, block: int, layer: int) -> np.ndarray:
        return self.held[block, layer].copy()

    def write(self, block: int, layer: int, data: np.ndarray) -> None:
        self.held[block, layer] = np.array(data)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


@pytest.fixture
def sender(log: Path) -> Iterator[KvSender]:
    one = KvSender(KvStore(limit_bytes=1 << 20), note=journal(log), idle_s=5.0).start()
    one.store.put(prefix("p"))
    yield one
    one.close()


def wanted(sender: KvSender, **changes: Any) -> Wanted:
    host, port = sender.address
    base = Wanted("r1", host, port, "p", 0, 3, GEOMETRY, deadline_s=20.0, idle_s=5.0)
    return replace(base, **changes)


def wait_for(condition: Any, *, what: str, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def test_blocks_arrive_and_bytes_are_the_formula(sender: KvSender, log: Path) -> None:
    cache = Cache()
    found = fetch(wanted(sender), write=cache.write)
    assert found.reason is None and found.blocks == 3
    for block, layers in enumerate(prefix("p").blocks):
        for layer, data in enumerate(layers):
            assert np.array_equal(cache.held[block, layer], data)
    assert found.payload_bytes == 3 * len(LAYERS) * BLOCK_BYTES == wanted(sender).payload_bytes
    assert 0 < found.framing_bytes < found.payload_bytes
    wait_for(lambda: read_journal(log), what="the sender's line")
    (line,) = read_journal(log)
    assert (line["event"], line["payload_bytes"]) == ("sent", found.payload_bytes)
    assert line["framing_bytes"] == found.framing_bytes


def test_a_part_of_a_prefix_and_smaller_formats(sender: KvSender) -> None:
    for wire, width in (("fp16", 2.0), ("int8", 8.25 / 8)):
        cache = Cache()
        found = fetch(wanted(sender, first=1, end=3, wire=wire), write=cache.write)
        assert (found.reason, found.blocks) == (None, 2)
        assert found.payload_bytes == 2 * len(LAYERS) * 2 * 4 * 32 * width
        got = cache.held[0, 0].view(np.float32)
        due = prefix("p").blocks[1][0].view(np.float32)
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
def test_what_cannot_be_fetched_has_a_reason(sender: KvSender, changes: dict, reason: str) -> None:
    found = fetch(wanted(sender, **changes), write=Cache().write)
    assert found.blocks == 0 and reason in (found.reason or "")


class Relay:
    """Between the two sides: passes ``most`` bytes on, or spoils byte number ``spoil``."""

    def __init__(self, target: tuple[str, int], *, most: int | None, spoil: int | None) -> None:
        self.target, self.most, self.spoil = target, most, spoil
        self.door = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        inner, _ = self.door.accept()
        with inner, socket.create_connection(self.target) as outer:
            forward = threading.Thread(target=self._ask, args=(inner, outer), daemon=True)
            forward.start()
            at = 0
            while data := bytearray(outer.recv(4096)):
                if self.spoil is not None and at <= self.spoil < at + len(data):
                    data[self.spoil - at] ^= 1
                if self.most is not None and at + len(data) > self.most:
                    inner.sendall(data[: self.most - at])
                    inner.shutdown(socket.SHUT_RDWR)  # the other thread still holds the socket
                    return
                inner.sendall(data)
                at += len(data)
            inner.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _ask(inner: socket.socket, outer: socket.socket) -> None:
        try:
            while data := inner.recv(4096):
                outer.sendall(data)
        except OSError:
            pass


def total_bytes(sender: KvSender) -> int:
    found = fetch(wanted(sender), write=Cache().write)
    request = framing_bytes({"kind": "fetch", "prefix": "p", "first": 0, "end": 3, "wire": "raw",
                             "request": "r1"})  # fmt: skip
    return found.payload_bytes + found.framing_bytes - request


@pytest.mark.parametrize("spoiled", [False, True])
def test_a_cut_or_spoiled_stream_leaves_a_valid_shorter_prefix(
    sender: KvSender, spoiled: bool
) -> None:
    total = total_bytes(sender)
    reasons = set()
    for place in np.linspace(0, total - 1, 12).astype(int):
        most, spoil = (None, int(place)) if spoiled else (int(place), None)
        relay, cache = Relay(sender.address, most=most, spoil=spoil), Cache()
        host, port = relay.door.getsockname()
        found = fetch(wanted(sender, host=host, port=port), write=cache.write)
        relay.door.close()
        assert found.reason is not None
        reasons.add(found.reason)
        for block in range(found.blocks):
            for layer in range(len(LAYERS)):
                assert np.array_equal(cache.held[block, layer], prefix("p").blocks[block][layer])
    texts = "\n".join(reasons)
    assert ("the digest does not fit" if spoiled else "closed the connection") in texts


def test_a_producer_that_stops_in_the_middle_meets_the_idle_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        base = Wanted("r", host, port, "p", 0, 1, GEOMETRY, deadline_s=30.0, idle_s=0.05)
        assert fetch(base, write=Cache().write).reason == "no byte for 0.05 s"
        late = fetch(replace(base, deadline_s=0.05, idle_s=30.0), write=Cache().write)
        assert late.reason == "the transfer passed its deadline"


def test_a_consumer_that_leaves_does_not_hold_the_sender(sender: KvSender, log: Path) -> None:
    sender.store.put(prefix("big", blocks=60))
    with socket.create_connection(sender.address) as sock:
        head, _ = pack({"prefix": "big", "first": 0, "end": 60, "wire": "raw"})
        sock.sendall(head)
        sock.recv(1000)
    wait_for(lambda: read_journal(log), what="the sender's line")
    assert read_journal(log)[0]["event"] in ("send_failed", "sent")
    assert fetch(wanted(sender), write=Cache().write).reason is None


def test_a_paced_link_holds_the_transfer_to_its_rate(sender: KvSender) -> None:
    size = total_bytes(sender)
    rate_bit_s = 8 * size / 0.5
    with open_hosts(2, link=Link(rate_bit_s), kind="paced") as hosts:
        host, port = hosts.route(1, 0, port=sender.address[1])
        found = fetch(wanted(sender, host=host, port=port), write=Cache().write)
    assert found.reason is None
    assert found.seconds > 0.25  # a free link takes milliseconds; above, a busy machine may add


def test_a_taken_port_is_named(sender: KvSender) -> None:
    with pytest.raises(TurboLabError, match="cannot listen on"):
        KvSender(sender.store, note=journal(None), port=sender.address[1]).start()


# The two halves


def request(name: str, tokens: int, params: dict | None, **extra: Any) -> Any:
    return SimpleNamespace(request_id=name, prompt_token_ids=list(range(tokens)),
                           kv_transfer_params=params, num_computed_tokens=0, **extra)  # fmt: skip


def half(notes: list | None = None) -> SchedulerHalf:
    told = [] if notes is None else notes
    made = SchedulerHalf(block_tokens=BLOCK, model="m",
                         note=lambda event, **facts: told.append((event, facts)))  # fmt: skip
    made.address = ("127.0.0.1", 7)
    return made


def offer_for(tokens: int) -> dict[str, Any]:
    producer, asked = half(), request("a", tokens, {"do_remote_decode": True})
    producer.new_request(asked)
    producer.plan({"a": tokens}, block_ids=lambda name: list(range(100)))
    found = producer.finished(asked)
    assert found is not None
    return found


@given(st.integers(1, 40), st.integers(1, 10))
def test_a_prompt_is_kept_once_when_its_last_chunk_is_computed(tokens: int, chunk: int) -> None:
    producer, asked = half(), request("a", tokens, {"do_remote_decode": True})
    producer.new_request(asked)
    saves = []
    while asked.num_computed_tokens < tokens + 2:  # two steps of decoding follow
        step = min(chunk, tokens - asked.num_computed_tokens) or 1
        plan = producer.plan({"a": step, "other": 1}, block_ids=lambda name: list(range(50, 99)))
        whole = asked.num_computed_tokens < tokens <= asked.num_computed_tokens + step
        assert bool(plan.saves) == (whole and tokens > BLOCK)
        saves += plan.saves
        asked.num_computed_tokens += step
    blocks = (tokens - 1) // BLOCK
    params = producer.finished(asked)
    if not blocks:
        assert not saves and params is None
        return
    assert saves[0].blocks == tuple(range(50, 50 + blocks))
    assert params is not None and params["remote_tokens"] == blocks * BLOCK
    assert params["remote_prefix"] == saves[0].key == prefix_key(range(blocks * BLOCK), model="m")


@given(st.integers(5, 40), st.integers(0, 30), st.integers(0, 10))
def test_a_consumer_fetches_whole_blocks_and_leaves_a_token(
    offered: int, more: int, local_blocks: int
) -> None:
    consumer = half()
    asked = request("b", offered + more, offer_for(offered))
    local = min(local_blocks, (offered + more - 1) // BLOCK) * BLOCK
    found = consumer.matched(asked, local)
    assert found == max(0, (offered - 1) // BLOCK * BLOCK - local)
    assert (local + found) < offered + more and found % BLOCK == 0
    consumer.allocated(asked, list(range(200, 300)), found)
    plan = consumer.plan({}, block_ids=lambda name: [])
    if not found:
        assert not plan.loads
        return
    (load,) = plan.loads
    assert load.first == local // BLOCK
    assert load.blocks == tuple(range(200 + load.first, 200 + (local + found) // BLOCK))
    assert consumer.matched(asked, 0) == 0, "after a failure the engine computes by itself"
    assert not consumer.plan({}, block_ids=lambda name: []).loads


def test_offers_that_do_not_fit_are_refused_with_a_reason() -> None:
    notes: list = []
    consumer, good = half(notes), offer_for(13)
    other = request("c", 13, good)
    other.prompt_token_ids[2] = 99
    broken = [
        (other, "not the beginning of this prompt"),
        (request("d", 13, {**good, "remote_port": "x"}), "not usable"),
        (request("e", 13, {k: v for k, v in good.items() if k != "remote_host"}), "remote_host"),
        (request("f", 13, {**good, "wire": "int3"}), "wire is 'int3'"),
    ]
    for asked, reason in broken:
        assert consumer.matched(asked, 0) == consumer.matched(asked, 0) == 0
        assert len(notes) == 1
        event, facts = notes.pop()
        assert event == "refused" and reason in facts["reason"]
    assert consumer.matched(request("g", 13, None), 0) == 0 and not notes


def worker(log: Path, *, sender: KvSender | None = None, **limits: float) -> WorkerHalf:
    store = sender.store if sender else KvStore(limit_bytes=1 << 20)
    return WorkerHalf(Cache(), store, sender=sender, note=journal(log),
                      limits=Limits(**{"deadline_s": 20.0, **limits}))  # fmt: skip


def fill(cache: Cache, blocks: int, seed: int = 3) -> None:
    numbers = np.random.default_rng(seed).integers(0, 256, (blocks, len(LAYERS), BLOCK_BYTES))
    for block in range(blocks):
        for layer in range(len(LAYERS)):
            cache.write(block, layer, numbers[block, layer].astype(np.uint8))


def hand_over(tmp_path: Path, *, stop_after: int | None = None) -> tuple[WorkerHalf, Load, Cache]:
    """Keep 13 tokens at one engine and fetch them at another; ``stop_after`` bytes it breaks."""
    log = tmp_path / "journal.jsonl"
    sender = KvSender(KvStore(limit_bytes=1 << 20), note=journal(None)).start()
    source = worker(log, sender=sender)
    fill(source.blocks, 40)
    producer, asked = half(), request("a", 13, {"do_remote_decode": True})
    producer.address = sender.address
    producer.new_request(asked)
    plan = producer.plan({"a": 13}, block_ids=lambda name: [7, 9, 11, 13])
    source.save(plan.saves)
    params = producer.finished(asked)
    if stop_after is not None:
        relay = Relay(sender.address, most=stop_after, spoil=None)
        params = {**params, "remote_port": relay.door.getsockname()[1]}
    consumer, target = half(), worker(log)
    decoding = request("b", 13, params)
    consumer.allocated(decoding, [20, 21, 22, 23], consumer.matched(decoding, 0))
    loads: Plan = consumer.plan({}, block_ids=lambda name: [])
    target.load(loads.loads)
    done: set[str] = set()
    wait_for(lambda: done.update(target.finished()) or done, what="the fetch")
    assert done == {"b"}
    source.close()
    return target, loads.loads[0], source.blocks


def test_blocks_land_where_the_consumer_wants_them(tmp_path: Path) -> None:
    target, load, source = hand_over(tmp_path)
    assert load.blocks == (20, 21, 22) and target.invalid() == set()
    for theirs, own in zip((7, 9, 11), load.blocks, strict=True):
        for layer in range(len(LAYERS)):
            assert np.array_equal(target.blocks.held[own, layer], source.held[theirs, layer])
    events = {row["event"]: row for row in read_journal(tmp_path / "journal.jsonl")}
    assert events["fetched"]["tokens"] == 12 and events["fetched"]["reason"] is None
    assert events["fetched"]["payload_bytes"] == 3 * len(LAYERS) * BLOCK_BYTES


def test_what_did_not_arrive_is_named_for_recomputation(tmp_path: Path) -> None:
    reach = int(1.6 * len(LAYERS) * (BLOCK_BYTES + 200))  # past the first block
    target, load, _ = hand_over(tmp_path, stop_after=reach)
    assert target.invalid() == set(load.blocks[1:]) and target.invalid() == set()
    (row,) = [r for r in read_journal(tmp_path / "journal.jsonl") if r["event"] == "recompute"]
    assert row["blocks"] == 1 and "closed the connection" in row["reason"]


def test_a_fetch_that_fails_inside_still_reports(tmp_path: Path) -> None:
    target = worker(tmp_path / "j.jsonl")
    target.blocks.write = None  # type: ignore[assignment]
    load = Load("r", "p", "127.0.0.1", 1, 0, (5,), "raw")
    target._report(load, Fetched(reason="x"))
    assert target.finished() == {"r"} and target.invalid() == {5}
