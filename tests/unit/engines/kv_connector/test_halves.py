"""What the scheduler's half decides and the worker's half does, without an engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.engines.kv_connector.fetch import Fetched
from turbo_lab.engines.kv_connector.journal import journal, read_journal
from turbo_lab.engines.kv_connector.scheduling import Load, Plan, SchedulerHalf
from turbo_lab.engines.kv_connector.sender import KvSender
from turbo_lab.engines.kv_connector.store import KvStore, prefix_key
from turbo_lab.engines.kv_connector.working import Limits, WorkerHalf

BLOCK, LAYERS, BLOCK_BYTES = 4, ("l0", "l1", "l2"), 2 * 4 * 32 * 4


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
        step = max(1, min(chunk, tokens - asked.num_computed_tokens))
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


def worker(kit: Any, log: Path, *, sender: KvSender | None = None, **limits: float) -> WorkerHalf:
    store = sender.store if sender else KvStore(limit_bytes=1 << 20)
    return WorkerHalf(kit.Cache(), store, sender=sender, note=journal(log),
                      limits=Limits(**{"deadline_s": 20.0, **limits}))  # fmt: skip


def fill(cache: Any, blocks: int, seed: int = 3) -> None:
    numbers = np.random.default_rng(seed).integers(0, 256, (blocks, len(LAYERS), BLOCK_BYTES))
    for block in range(blocks):
        for layer in range(len(LAYERS)):
            cache.write(block, layer, numbers[block, layer].astype(np.uint8))


def hand_over(
    kit: Any, tmp_path: Path, *, stop_after: int | None = None
) -> tuple[WorkerHalf, Load, Any]:
    """Keep 13 tokens at one engine and fetch them at another; ``stop_after`` bytes it breaks."""
    log = tmp_path / "journal.jsonl"
    sender = KvSender(KvStore(limit_bytes=1 << 20), note=journal(None)).start()
    source = worker(kit, log, sender=sender)
    fill(source.blocks, 40)
    producer, asked = half(), request("a", 13, {"do_remote_decode": True})
    producer.address = sender.address
    producer.new_request(asked)
    plan = producer.plan({"a": 13}, block_ids=lambda name: [7, 9, 11, 13])
    source.save(plan.saves)
    params = producer.finished(asked)
    if stop_after is not None:
        relay = kit.Relay(sender.address, most=stop_after, spoil=None)
        params = {**params, "remote_port": relay.door.getsockname()[1]}
    consumer, target = half(), worker(kit, log)
    decoding = request("b", 13, params)
    consumer.allocated(decoding, [20, 21, 22, 23], consumer.matched(decoding, 0))
    loads: Plan = consumer.plan({}, block_ids=lambda name: [])
    target.load(loads.loads)
    done: set[str] = set()
    kit.wait_for(lambda: done.update(target.finished()) or done, what="the fetch")
    assert done == {"b"}
    source.close()
    return target, loads.loads[0], source.blocks


def test_blocks_land_where_the_consumer_wants_them(kit: Any, tmp_path: Path) -> None:
    target, load, source = hand_over(kit, tmp_path)
    assert load.blocks == (20, 21, 22) and target.invalid() == set()
    for theirs, own in zip((7, 9, 11), load.blocks, strict=True):
        for layer in range(len(LAYERS)):
            assert np.array_equal(target.blocks.held[own, layer], source.held[theirs, layer])
    events = {row["event"]: row for row in read_journal(tmp_path / "journal.jsonl")}
    assert events["fetched"]["tokens"] == 12 and events["fetched"]["reason"] is None
    assert events["fetched"]["payload_bytes"] == 3 * len(LAYERS) * BLOCK_BYTES


def test_what_did_not_arrive_is_named_for_recomputation(kit: Any, tmp_path: Path) -> None:
    reach = int(1.6 * len(LAYERS) * (BLOCK_BYTES + 200))  # past the first block
    target, load, _ = hand_over(kit, tmp_path, stop_after=reach)
    assert target.invalid() == set(load.blocks[1:]) and target.invalid() == set()
    (row,) = [r for r in read_journal(tmp_path / "journal.jsonl") if r["event"] == "recompute"]
    assert row["blocks"] == 1 and "closed the connection" in row["reason"]


def test_a_fetch_that_fails_inside_still_reports(kit: Any, tmp_path: Path) -> None:
    target = worker(kit, tmp_path / "j.jsonl")
    target.blocks.write = None  # type: ignore[assignment]
    load = Load("r", "p", "127.0.0.1", 1, 0, (5,), "raw")
    target._report(load, Fetched(reason="x"))
    assert target.finished() == {"r"} and target.invalid() == {5}
