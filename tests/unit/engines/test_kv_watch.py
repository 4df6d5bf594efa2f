"""The watch's arguments, its log of block tables, and its clean-up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core.errors import EngineError, UnmeasuredError
from turbo_lab.engines import kv_watch
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.kv_watch import KvWatch, count_blocks, folder_bytes, reset_prefix_cache

LINES: list[dict[str, Any]] = [
    {"request": "cmpl-talk-1-0-abc", "blocks": [3, 4], "cached_tokens": 0},
    {"request": "cmpl-talk-10-0-abd", "blocks": [3, 7], "cached_tokens": 128},
    {"request": "cmpl-talk-1-0-abc", "grown": [9], "resumed": False},
    {"request": "cmpl-talk-1-0-abc", "ended": True},
]


@pytest.fixture
def watch(tmp_path: Path) -> KvWatch:
    return KvWatch(tmp_path / "w", tmp_path / "w" / "tier").make()


def log(watch: KvWatch, rows: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (watch.folder / "tables.jsonl").write_text(text)


def test_tables_are_put_together_by_request(watch: KvWatch) -> None:
    log(watch, LINES)
    assert watch.tables(["talk-1", "talk-10"]) == {"talk-1": [3, 4, 9], "talk-10": [3, 7]}


def test_a_request_that_came_again_has_its_last_table(watch: KvWatch) -> None:
    log(watch, [*LINES, {"request": "cmpl-talk-1-0-fff", "blocks": [5]}])
    assert watch.tables(["talk-1"]) == {"talk-1": [5]}


def test_a_preempted_request_starts_again(watch: KvWatch) -> None:
    log(watch, [*LINES[:1], {"request": "cmpl-talk-1-0-abc", "grown": [8, 6], "resumed": True}])
    assert watch.tables(["talk-1"]) == {"talk-1": [8, 6]}


def test_missing_tables_are_unmeasured(watch: KvWatch) -> None:
    with pytest.raises(UnmeasuredError, match="no block tables"):
        watch.tables(["talk-1"])
    log(watch, LINES)
    with pytest.raises(UnmeasuredError, match="no block table for talk-2"):
        watch.tables(["talk-1", "talk-2"])


def test_arguments_hold_pool_watch_and_tier(watch: KvWatch) -> None:
    args = watch.args(VllmArgs.make(model="m"), pool_blocks=24, block_tokens=128)
    extra = dict(args.extra)
    assert extra["--num-gpu-blocks-override"] == "25"  # one is vLLM's null block
    connector = json.loads(extra["--kv-transfer-config"])
    assert connector["kv_connector_module_path"] == "turbo_lab.experiment.block_watch"
    assert connector["kv_connector_extra_config"]["shared_storage_path"] == str(watch.tier)
    assert json.loads(extra["--kv-events-config"])["enable_kv_cache_events"] is True
    assert args.enable_prefix_caching and args.block_size == 128
    assert args.max_num_batched_tokens == args.max_model_len
    again = watch.args(VllmArgs.make(model="m"), pool_blocks=24, block_tokens=128)
    assert again.digest() == args.digest()  # so that a server pool can share it


def test_a_second_engine_on_a_gpu_takes_little_of_it(watch: KvWatch) -> None:
    gpu = VllmArgs.make(model="m", device="gpu", dtype="auto")
    second = watch.args(gpu, pool_blocks=24, block_tokens=16)
    assert (second.kv_cache_gib, second.gpu_memory_utilization) == (1, 0.05)
    cpu = VllmArgs.make(model="m")
    assert kv_watch.beside_another(cpu) == cpu


def test_one_owner_has_one_short_folder() -> None:
    one, same, other = (KvWatch.at(path) for path in ("/a" * 200, "/a" * 200, "/b"))
    assert one == same != other
    assert len(str(one.folder / "replay")) < 100  # the limit of a socket's path is 107


def test_tier_goes_to_memory_only_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_watch, "_has_room", lambda folder: True)
    assert KvWatch.at("x").place == "memory"
    monkeypatch.setattr(kv_watch, "_has_room", lambda folder: False)
    beside = KvWatch.at("x")
    assert beside.place == "disk" and beside.tier.parent == beside.folder


def test_clearing_and_removing(watch: KvWatch) -> None:
    (watch.tier / "prompt").mkdir()
    (watch.tier / "prompt" / "layer.bin").write_bytes(b"1234")
    assert folder_bytes(watch.tier) == 4
    assert watch.clear_tier() == 4 and watch.clear_tier() == 0
    watch.remove()
    assert not watch.folder.exists() and not watch.tier.exists()
    watch.remove()


class FakeServer:
    def __init__(self, folder: Path, dtype: str) -> None:
        self.args = VllmArgs.make(model=str(folder), dtype=dtype)

    def cache_config(self) -> dict[str, str]:
        return {"block_size": "128", "num_gpu_blocks": "25"}


@pytest.mark.parametrize(("asked", "told"), [("float32", "fp32"), ("auto", "bf16")])
def test_facts_of_the_pool(tmp_path: Path, asked: str, told: str) -> None:
    config = {"dtype": "bfloat16", "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    server: Any = FakeServer(tmp_path, asked)
    assert kv_watch.pool_facts(server) == {
        "config": config, "dtype": told, "block": 128, "usable_blocks": 24,
    }  # fmt: skip


def test_events_are_counted_by_block() -> None:
    batches = [
        {"number": 0, "events": [{"type": "BlockStored", "block_hashes": [b"a", b"b"]}]},
        {"number": 1, "events": [{"type": "BlockRemoved", "block_hashes": [b"a"]},
                                 {"type": "AllBlocksCleared"}]},
    ]  # fmt: skip
    assert count_blocks(batches) == {"BlockStored": 2, "BlockRemoved": 1, "AllBlocksCleared": 0}


def test_no_server_is_an_error_with_its_reason() -> None:
    with pytest.raises(EngineError, match="reset_prefix_cache"):
        reset_prefix_cache("http://127.0.0.1:9", timeout_s=1.0)


def test_events_come_from_the_replay_socket(watch: KvWatch) -> None:
    """A router that answers as vLLM's publisher does: batches, then an end marker."""
    zmq = pytest.importorskip("zmq")
    msgspec = pytest.importorskip("msgspec")
    import threading

    def publisher(socket: Any) -> None:
        client, _, start = socket.recv_multipart()
        first = int.from_bytes(start, "big")
        for number in range(first, 3):
            payload = msgspec.msgpack.encode([1.0, [{"type": "BlockRemoved", "block_hashes": [7]}]])
            socket.send_multipart((client, b"", b"", number.to_bytes(8, "big"), payload))
        socket.send_multipart((client, b"", b"", (-1).to_bytes(8, "big", signed=True), b""))

    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        socket.bind(f"ipc://{watch.folder}/replay")
        thread = threading.Thread(target=publisher, args=(socket,))
        thread.start()
        batches = watch.events(since=1)
        thread.join()
    assert [b["number"] for b in batches] == [1, 2]
    assert count_blocks(batches) == {"BlockRemoved": 2}


def test_a_silent_server_is_unmeasured(watch: KvWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zmq")
    pytest.importorskip("msgspec")
    monkeypatch.setattr(kv_watch, "REPLY_MS", 50)
    with pytest.raises(UnmeasuredError, match="sends no KV events"):
        watch.events()
