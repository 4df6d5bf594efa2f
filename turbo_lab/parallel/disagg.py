"""Two real engines that hand KV blocks over a link of our speed: the parts of every measurement.

The producer runs on the machine's first cores and the consumer on its last (``Pair``), so that
neither takes the other's time; what comes between them is a paced link in this process.
"""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from turbo_lab.core.direct import open_direct
from turbo_lab.core.errors import EngineError, UnmeasuredError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.kv_connector.args import Pair, keep, reroute
from turbo_lab.engines.kv_connector.codec import RAW
from turbo_lab.engines.kv_watch import beside_another
from turbo_lab.engines.pool import shared_server, start_together
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.experiment.prefix import ask_in_turn, prompt_request
from turbo_lab.network.hosts import Hosts
from turbo_lab.network.link import Link
from turbo_lab.network.links import open_hosts
from turbo_lab.parallel.disagg_handover import Waits
from turbo_lab.parallel.disagg_proxy import DisaggProxy

PRODUCER_HOST, CONSUMER_HOST = 0, 1
PATIENCE_S = 5.0
RECOMPUTE = "recompute"


@dataclass(frozen=True)
class Moved:
    """One request at the consumer. ``arm``: ``recompute``, or how the blocks travelled.

    ``cached_tokens`` is what the server says of the request; bytes and ``transfer_s`` come from the
    consumer's journal (None without a transfer); ``reason`` tells why less came than was offered.
    """

    arm: str
    prompt_tokens: int
    rate_bytes_s: float | None
    wire: str
    ttft_s: float
    cached_tokens: int
    external_tokens: int
    text: str
    payload_bytes: int | None = None
    framing_bytes: int | None = None
    transfer_s: float | None = None
    decode_s: float | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


@dataclass(frozen=True)
class Handing:
    """The running parts: two servers, their journals, the link."""

    producer: VllmServer
    consumer: VllmServer
    pair: Pair
    hosts: Hosts
    routes: dict[int, tuple[str, int]] = field(default_factory=dict)

    def set_rate(self, rate_bytes_s: float | None) -> None:
        """Give the link another speed (None: as fast as the machine copies)."""
        link = Link() if rate_bytes_s is None else Link(8 * rate_bytes_s)
        for host in (PRODUCER_HOST, CONSUMER_HOST):
            self.hosts.shape(host, link)

    def offer(self, prompt: Sequence[int], *, timeout_s: float = 120.0) -> dict[str, Any]:
        """Let the producer compute and keep a prompt; what it says of the blocks.

        Raises UnmeasuredError for a prompt without a whole block.
        """
        body = prompt_request(prompt, model=self.producer.model_name).body()
        body |= {"stream": False, "stream_options": None, "kv_transfer_params": keep()}
        offer = post(self.producer.base_url, body, timeout_s=timeout_s).get("kv_transfer_params")
        if not offer:
            raise UnmeasuredError(f"the producer keeps nothing of {len(prompt)} tokens")
        return offer

    def through_link(self, offer: dict[str, Any], **changes: Any) -> dict[str, Any]:
        """The offer as the consumer shall see it: fetched over the link."""
        port = int(offer["remote_port"])
        if port not in self.routes:
            self.routes[port] = self.hosts.route(CONSUMER_HOST, PRODUCER_HOST, port=port)
        return reroute(offer, self.routes[port], **changes)

    def ask(
        self, prompt: Sequence[int], *, offer: dict[str, Any] | None = None,
        rate_bytes_s: float | None = None, wire: str = RAW, output_tokens: int = 1,
    ) -> Moved:  # fmt: skip
        """One request at the consumer, which fetches when there is an offer.

        Raises UnmeasuredError when the server was used by others, or its counters and its journal
        disagree.
        """
        extra: dict[str, Any] = {}
        if offer is not None:
            self.set_rate(rate_bytes_s)
            extra = {"kv_transfer_params": self.through_link(offer, wire=wire)}
        seen = len(self._ends())
        told = ask_in_turn(
            self.consumer,
            [prompt_request(prompt, model=self.consumer.model_name, output_tokens=output_tokens,
                            **extra)],
        )  # fmt: skip
        facts: dict[str, Any] = {}
        if offer is not None:
            facts = self._account(seen)
        return Moved(
            arm=RECOMPUTE if offer is None else "transfer", prompt_tokens=len(prompt),
            rate_bytes_s=rate_bytes_s, wire=wire, ttft_s=told.ttft_s[0],
            cached_tokens=told.cached_tokens[0] or 0, external_tokens=told.hits.external_tokens,
            text=told.texts[0] or "", **facts,
        )  # fmt: skip

    @contextlib.contextmanager
    def proxy(
        self, *, wire: str = RAW, hand_over: bool = True, waits: Waits | None = None
    ) -> Iterator[DisaggProxy]:
        """The proxy before both servers, its transfers over the link."""
        with DisaggProxy(
            self.producer.base_url, self.consumer.base_url, hand_over=hand_over, waits=waits,
            reroute=lambda offer: self.through_link(offer, wire=wire),
        ) as proxy:  # fmt: skip
            yield proxy

    def _ends(self) -> list[dict[str, Any]]:
        ends = ("fetched", RECOMPUTE, "refused")
        return [row for row in self.pair.events("consumer") if row["event"] in ends]

    def _account(self, seen: int) -> dict[str, Any]:
        """The consumer's own account of the one transfer since ``seen`` ended."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self._ends()) <= seen and time.monotonic() < deadline:
            time.sleep(0.02)
        rows = self._ends()[seen:]
        if len(rows) != 1:
            raise UnmeasuredError(f"the consumer wrote down {len(rows)} transfers, not one")
        row = rows[0]
        return {
            "payload_bytes": row.get("payload_bytes"), "framing_bytes": row.get("framing_bytes"),
            "transfer_s": row.get("seconds"), "decode_s": row.get("decode_s"),
            "reason": row.get("reason"),
        }  # fmt: skip


def pair_args(args: VllmArgs, pair: Pair, **extra: float | str) -> tuple[VllmArgs, VllmArgs]:
    """Arguments of producer and consumer; equal but for the side and the core."""
    base = beside_another(args)
    return pair.args(base, "producer", **extra), pair.args(base, "consumer", **extra)


def start_pair(args: VllmArgs, pair: Pair, **extra: float | str) -> tuple[VllmServer, VllmServer]:
    """Both servers from the current pool, started side by side. Raises EngineError."""
    sides = pair_args(args, pair, **extra)
    start_together(*sides)
    producer, consumer = map(shared_server, sides)
    return producer, consumer


@contextlib.contextmanager
def handing(producer: VllmServer, consumer: VllmServer, pair: Pair) -> Iterator[Handing]:
    """The two servers with a link between them; the link ends with the block."""
    with open_hosts(2, link=None, kind="paced") as hosts:
        yield Handing(producer, consumer, pair, hosts)


def post(base_url: str, body: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """One completion without a stream. Raises EngineError with the server's words."""
    return post_json(f"{base_url}/v1/completions", body, timeout_s=timeout_s)


def post_json(url: str, body: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """The JSON that a POST answers. Raises EngineError with the server's words."""
    request = urllib.request.Request(
        url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    try:
        with open_direct(request, timeout_s=timeout_s) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        told = error.read()[:300].decode(errors="replace")
        raise EngineError(f"POST {url} answered {error.code}: {told}") from error
    except (OSError, ValueError) as error:
        raise EngineError(f"POST {url}: {error}") from error
