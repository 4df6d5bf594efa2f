"""What the mock server does with a request: pick a reply, keep its times, note each send."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from turbo_lab.engines.mock_http import HttpConnection
from turbo_lab.engines.mock_script import Reply, Script, speak

PLANS_KEPT = 32


@dataclass
class LogEntry:
    """One request as the server saw it; ``sends`` are ``(t_s, mark)`` taken just before a write."""

    request_id: str | None
    path: str
    body: dict[str, Any]
    received_s: float
    started_s: float | None = None
    status: int | None = None
    sends: list[tuple[float, str]] = field(default_factory=list)
    ended_s: float | None = None
    end: str | None = None

    def content_s(self) -> list[float]:
        """When each piece marked ``content`` left."""
        return [t for t, mark in self.sends if mark == "content"]


class MockApp:
    """The script, its position, and the log. Lives on one event loop."""

    def __init__(self, script: Script) -> None:
        self.log: list[LogEntry] = []
        self.use(script)

    def use(self, script: Script) -> None:
        """Begin with this script; the log is kept."""
        self.script = script
        self._served: dict[str, int] = {}
        # Written once per kind of request: making JSON would be the mock's largest cost.
        self._say = functools.lru_cache(PLANS_KEPT)(functools.partial(speak, model=script.model))
        self._slots = asyncio.Semaphore(script.slots) if script.slots else None

    def _pick(self, request_id: str | None, body: bytes) -> Reply:
        """The next reply among those that match this request, in turn."""
        where = (request_id or "").encode() + b"\n" + body
        named = [r for r in self.script.replies if r.match and r.match.encode() in where]
        pool = named or [r for r in self.script.replies if not r.match]
        if not pool:
            return Reply(status=404, content_type="text/plain")
        key = "\n".join(r.match for r in pool)
        turn = self._served.get(key, 0)
        self._served[key] = turn + 1
        return pool[turn % len(pool)]

    async def handle(
        self, http: HttpConnection, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        """Answer one request."""
        if path in ("/v1/chat/completions", "/v1/completions") and method == "POST":
            await self._complete(http, path, headers.get("x-request-id"), body)
        elif path == "/mock/script" and method == "POST":
            self.use(Script.from_dict(json.loads(body)))
            http.answer(200, b"{}")
        elif path == "/mock/reset" and method == "POST":
            self.log.clear()
            self.use(self.script)
            http.answer(200, b"{}")
        elif path in ("/health", "/ping"):
            http.answer(200, b"{}")
        else:
            self._inform(http, path)

    def _inform(self, http: HttpConnection, path: str) -> None:
        if path == "/v1/models":
            rows = [{"id": self.script.model, "object": "model", "max_model_len": 1 << 20}]
            http.answer(200, json.dumps({"object": "list", "data": rows}).encode())
        elif path == "/metrics":
            lines = [f"{name} {value}" for name, value in self.counters().items()]
            http.answer(200, "\n".join([*lines, ""]).encode(), content_type="text/plain")
        elif path == "/mock/log":
            rows = [asdict(entry) for entry in self.log]
            http.answer(200, json.dumps(rows).encode())
        else:
            http.answer(404, b'{"error": {"message": "no such path"}}')

    def counters(self) -> dict[str, float]:
        """What ``/metrics`` shows."""
        running = sum(1 for e in self.log if e.ended_s is None)
        base = {"mock:requests_total": float(len(self.log)), "mock:requests_running": running}
        return {**base, **self.script.extra_metrics}

    async def _complete(
        self, http: HttpConnection, path: str, request_id: str | None, body: bytes
    ) -> None:
        entry = LogEntry(request_id, path, _json_body(body), http.received_s)
        self.log.append(entry)
        reply = self._pick(request_id, body)
        try:
            if self._slots is None:
                await self._reply(http, reply, entry)
            else:
                async with self._slots:
                    await self._reply(http, reply, entry)
        except asyncio.CancelledError:
            entry.end = entry.end or "client left"
            raise
        finally:
            entry.ended_s = time.perf_counter()

    async def _reply(self, http: HttpConnection, reply: Reply, entry: LogEntry) -> None:
        entry.started_s = due = time.perf_counter() if self._slots else entry.received_s
        if reply.head_after_s is None:
            await asyncio.Event().wait()
        due += reply.head_after_s or 0.0
        await _until(due)
        entry.status = reply.status
        http.head(reply.status, content_type=reply.content_type)
        chat = entry.path.endswith("chat/completions")
        for step in reply.plan(entry.body, chat=chat, say=self._say):
            due += step.after_s
            if step.after_s:
                await _until(due)
            entry.sends.append((time.perf_counter(), step.mark))
            http.piece(step.raw)
        entry.end = reply.end
        if reply.end == "hang":
            await asyncio.Event().wait()
        http.finish(cut=reply.end == "truncate")


async def _until(due_s: float) -> None:
    """Sleep to a time on ``perf_counter``; how late the wake-up was is in the log."""
    if (left := due_s - time.perf_counter()) > 0:
        await asyncio.sleep(left)


def _json_body(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


async def serve(
    app: MockApp, *, port: int, on_port: Callable[[int], None], stop: asyncio.Event
) -> None:
    """Serve on 127.0.0.1 until ``stop`` is set; ``on_port`` learns the port."""
    loop, open_connections = asyncio.get_running_loop(), set()
    server = await loop.create_server(
        lambda: HttpConnection(app.handle, open_connections), "127.0.0.1", port, backlog=4096
    )
    on_port(server.sockets[0].getsockname()[1])
    await stop.wait()
    server.close()
    for connection in list(open_connections):
        connection.abort()
    await asyncio.sleep(0)
