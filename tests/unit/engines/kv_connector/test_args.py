"""Arguments of the two servers that hand blocks over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turbo_lab.core import host
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.kv_connector.args import Pair, keep, reroute

ARGS = VllmArgs(model="m")


def config(args: VllmArgs) -> dict:
    return json.loads(dict(args.extra)["--kv-transfer-config"])


def test_both_sides_differ_in_role_core_and_journal_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "core_ids", lambda: [0, 1, 2, 3])
    pair = Pair(tmp_path / "new")
    one, two = pair.args(ARGS, "producer", idle_s=3.0), pair.args(ARGS, "consumer", idle_s=3.0)
    assert (one.cores, two.cores) == ((0, 1), (2, 3))
    assert one.replace(cores=None, extra=()) == two.replace(cores=None, extra=()) == ARGS
    told = config(one)
    assert (told["kv_role"], config(two)["kv_role"]) == ("kv_producer", "kv_consumer")
    assert told["kv_load_failure_policy"] == "recompute"
    assert told["kv_connector_extra_config"] == {
        "journal_path": str(tmp_path / "new" / "producer.jsonl"), "idle_s": 3.0,
    }  # fmt: skip
    assert pair.folder.is_dir() and pair.events("producer") == []


def test_one_core_is_shared_and_the_same_owner_has_the_same_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "core_ids", lambda: [5])
    pair = Pair.at("pool")
    assert pair.cores("producer") == pair.cores("consumer") == (5,)
    assert pair == Pair.at("pool") != Pair.at("other") and not pair.folder.exists()


def test_an_offer_is_rerouted_without_the_producers_own_hits(tmp_path: Path) -> None:
    offer = {"remote_host": "a", "remote_port": 1, "remote_tokens": 128,
             "remote_prefill_cached_tokens": 64}  # fmt: skip
    assert reroute(offer, ("b", 2), wire="int8") == {
        "remote_host": "b", "remote_port": 2, "remote_tokens": 128, "wire": "int8",
    }  # fmt: skip
    assert keep()["do_remote_decode"] and not keep()["do_remote_prefill"]
    pair = Pair(tmp_path)
    pair.journal("consumer").write_text('{"event": "fetched"}\n{"event": "fetch')
    assert pair.events("consumer", "fetched") == [{"event": "fetched"}]
    pair.remove()
    assert not tmp_path.exists()
