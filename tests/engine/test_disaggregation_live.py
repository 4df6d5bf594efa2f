"""Two real engines that hand KV blocks over: same text, counted bytes, and no hang when one dies.

The last two tests kill a server each, so the order matters: nothing may follow that needs them.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.client.stream import send_one
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.kv_connector.args import Pair, reroute
from turbo_lab.engines.kv_connector.codec import wire_bytes
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.experiment import company
from turbo_lab.experiment.prefix import prompt_request
from turbo_lab.metrics.definitions import outcome
from turbo_lab.models.memory import kv_bytes_per_token
from turbo_lab.models.spec import from_hf_config
from turbo_lab.parallel.disagg import Handing, handing, pair_args
from turbo_lab.parallel.disagg_proxy import DisaggProxy
from turbo_lab.workload.prompts import token_id_prompts

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.alone]
pytest.importorskip("vllm", reason="needs the cpu environment")

BLOCK, REPLY, PATIENCE_S = 128, 12, 120.0


@pytest.fixture(scope="module")
def args() -> VllmArgs:
    return VllmArgs.make(model=local_model.resolve_model(), dtype="float32")


@pytest.fixture(scope="module")
def token_bytes(args: VllmArgs) -> int:
    config = json.loads((Path(args.model) / "config.json").read_text())
    return kv_bytes_per_token(from_hf_config(config), dtype="fp32")


@pytest.fixture(scope="module")
def two(args: VllmArgs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handing]:
    pair = Pair.at(tmp_path_factory.mktemp("pair"))
    producer, consumer = map(VllmServer, pair_args(args, pair, deadline_s=90, idle_s=20))
    try:
        producer.start()
        consumer.start()
        producer.wait_ready()
        consumer.wait_ready()
        with handing(producer, consumer, pair) as parts:
            yield parts
    finally:
        producer.stop()
        consumer.stop()
        pair.remove()


def prompt(tokens: int, seed: int) -> list[int]:
    (ids,) = token_id_prompts(1, tokens=tokens, vocab_size=40_000, seed=seed, avoid=range(10))
    return list(ids)


def wait_for(condition: Callable[[], Any], *, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize(("tokens", "moved"), [(389, 384), (256, 128), (129, 128)])
def test_a_handed_over_prompt_gives_the_same_text_and_counted_bytes(
    two: Handing, token_bytes: int, tokens: int, moved: int
) -> None:
    ids = prompt(tokens, seed=tokens)
    alone = two.ask(ids, output_tokens=REPLY)
    offer = two.offer(ids)
    before = len(two.pair.events("producer", "sent"))
    handed = two.ask(ids, offer=offer, output_tokens=REPLY)
    assert handed.reason is None and handed.text == alone.text
    assert (alone.cached_tokens, alone.external_tokens) == (0, 0)
    assert offer["remote_tokens"] == handed.cached_tokens == handed.external_tokens == moved
    assert handed.payload_bytes == moved * token_bytes
    assert handed.framing_bytes and handed.framing_bytes < 0.01 * handed.payload_bytes
    wait_for(lambda: len(two.pair.events("producer", "sent")) > before, what="the sender's line")
    sent = two.pair.events("producer", "sent")[-1]
    assert (sent["payload_bytes"], sent["framing_bytes"]) == (
        handed.payload_bytes, handed.framing_bytes,
    )  # fmt: skip


def test_a_kept_prefix_serves_a_longer_prompt_and_no_other_one(two: Handing) -> None:
    ids, more = prompt(257, seed=7), prompt(60, seed=8)
    offer = two.offer(ids)
    longer = two.ask([*ids, *more], offer=offer, output_tokens=REPLY)
    assert longer.cached_tokens == 256
    assert longer.text == two.ask([*ids, *more], output_tokens=REPLY).text
    other = [*ids[:5], ids[5] + 1, *ids[6:]]
    refused = two.ask(other, offer=offer, output_tokens=REPLY)
    assert "not the beginning of this prompt" in (refused.reason or "")
    assert refused.cached_tokens == 0 and not refused.payload_bytes
    assert refused.text == two.ask(other, output_tokens=REPLY).text


def test_a_prompt_below_one_block_is_not_offered_and_still_answered(two: Handing) -> None:
    ids = prompt(BLOCK, seed=9)
    with pytest.raises(UnmeasuredError, match="keeps nothing of 128 tokens"):
        two.offer(ids)
    with two.proxy() as proxy:
        told = send_one(
            prompt_request(ids, model="lab", output_tokens=REPLY), base_url=proxy.base_url
        )
    assert outcome(told).ok and told.text == two.ask(ids, output_tokens=REPLY).text
    assert "keeps nothing" in (proxy.records[0].reason or "")


def test_fewer_bytes_on_the_link_move_the_choice_little(two: Handing) -> None:
    ids = prompt(3 * BLOCK + 1, seed=10)
    offer = two.offer(ids)
    asked = {"model": "lab", "output_tokens": REPLY}
    ours = company.choices([prompt_request(ids, **asked)], base_url=two.consumer.base_url,
                           concurrency=1)  # fmt: skip
    shifts = {}
    for wire in ("raw", "fp16", "int8"):
        moved = two.ask(ids, offer=offer, wire=wire)
        values = 3 * 30 * 3 * 2 * BLOCK * 64
        assert moved.payload_bytes == wire_bytes((values,), dtype="float32", wire=wire)
        params = two.through_link(offer, wire=wire)
        theirs = company.choices(
            [prompt_request(ids, **asked, kv_transfer_params=params)],
            base_url=two.consumer.base_url, concurrency=1,
        )  # fmt: skip
        shifts[wire] = company.largest_shift(ours[0], theirs[0])
    assert shifts["raw"] < 1e-4 and 0 < shifts["fp16"] < shifts["int8"] < 1.0


def test_a_connection_that_breaks_leaves_the_rest_to_the_consumer(
    two: Handing, token_bytes: int
) -> None:
    ids = prompt(3 * BLOCK + 1, seed=11)
    offer = two.offer(ids)
    broken = reroute(offer, cut_after(offer["remote_port"], int(1.5 * BLOCK * token_bytes)))
    request = prompt_request(ids, model="lab", output_tokens=REPLY, kv_transfer_params=broken)
    before = len(two.pair.events("consumer", "recompute"))
    told = send_one(request, base_url=two.consumer.base_url, timeout_s=PATIENCE_S)
    assert outcome(told).ok and told.text == two.ask(ids, output_tokens=REPLY).text
    (row,) = two.pair.events("consumer", "recompute")[before:]
    assert (row["blocks"], row["wanted_blocks"]) == (1, 3)
    assert "closed the connection" in row["reason"]


def cut_after(port: int, most_bytes: int) -> tuple[str, int]:
    """An address that passes so many bytes of what ``port`` sends, and then closes."""
    door = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        inner, _ = door.accept()
        with door, inner, socket.create_connection(("127.0.0.1", port)) as outer:
            outer.sendall(inner.recv(65_536))
            left = most_bytes
            while left > 0:
                data = outer.recv(min(65_536, left))
                inner.sendall(data)
                left -= len(data)

    threading.Thread(target=run, daemon=True).start()
    return door.getsockname()


def test_the_proxy_streams_the_same_reply(two: Handing) -> None:
    ids = prompt(2 * BLOCK + 3, seed=12)
    request = prompt_request(ids, model="lab", output_tokens=REPLY)
    with two.proxy() as proxy:
        told = send_one(request, base_url=proxy.base_url, timeout_s=PATIENCE_S)
    assert outcome(told).ok and told.text == two.ask(ids, output_tokens=REPLY).text
    assert told.usage and told.usage["prompt_tokens_details"]["cached_tokens"] == 2 * BLOCK
    assert proxy.records[0].offered_tokens == 2 * BLOCK and proxy.records[0].reason is None


def in_flight(two: Handing, base_url: str, ids: list[int], kill: Callable[[], None]) -> Any:
    """Send a request, ``kill`` once its transfer has begun, and give what the client got."""
    before = len(two.pair.events("consumer", "fetching"))
    request = prompt_request(ids, model="lab", output_tokens=REPLY)
    with ThreadPoolExecutor(max_workers=1) as client:
        waiting = client.submit(send_one, request, base_url=base_url, timeout_s=PATIENCE_S)
        wait_for(lambda: len(two.pair.events("consumer", "fetching")) > before, what="a transfer")
        kill()
        return waiting.result(timeout=2 * PATIENCE_S)


def test_the_producer_dies_in_mid_transfer_and_the_client_gets_its_answer(
    two: Handing, token_bytes: int
) -> None:
    ids = prompt(3 * BLOCK + 1, seed=13)
    alone = two.ask(ids, output_tokens=REPLY)
    with two.proxy() as proxy:
        two.set_rate(3 * BLOCK * token_bytes / 60)  # the transfer would take a minute
        told = in_flight(two, proxy.base_url, ids, two.producer.stop)
        assert outcome(told).ok and told.text == alone.text
        row = two.pair.events("consumer", "recompute")[-1]
        assert row["reason"] and row["blocks"] < 3
        again = send_one(prompt_request(prompt(200, seed=14), model="lab"), base_url=proxy.base_url)
        assert outcome(again).ok
        assert "the prefilling server failed" in (proxy.records[-1].reason or "")


def test_the_consumer_dies_in_mid_transfer_and_the_client_gets_a_clear_error(
    two: Handing,
) -> None:
    ids = prompt(3 * BLOCK + 1, seed=13)  # the producer is gone; its last offer is not
    kept = two.pair.events("producer", "kept")[-1]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        offer = {"do_remote_prefill": True, "remote_host": host, "remote_port": port,
                 "remote_prefix": kept["prefix"], "remote_tokens": 3 * BLOCK}  # fmt: skip
        with stand_in(offer) as url, DisaggProxy(url, two.consumer.base_url) as proxy:
            told = in_flight(two, proxy.base_url, ids, two.consumer.stop)
    end, record = outcome(told), proxy.records[0]
    assert not end.ok
    assert end.reason.startswith("HTTP 5") or (end.reason == "error inside the stream")
    assert record.error or (record.status or 0) >= 500


class stand_in:  # noqa: N801 (used as a function)
    """A producer that offers what a dead one kept."""

    def __init__(self, offer: dict[str, Any]) -> None:
        told = json.dumps({"choices": [], "kv_transfer_params": offer}).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

            def log_message(self, *parts: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *failure: object) -> None:
        self.server.shutdown()
        self.server.server_close()
