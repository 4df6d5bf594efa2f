"""The process of one node: a host that has parts, or the switch that only merges.

    python -m turbo_lab.turbo.switch <board folder> <machine number>

What it does is on the board under ``plan``: machines and their addresses, jobs. One socket, one
loop: take datagrams while there are any, send while the socket takes them, remind what is overdue.
"""

from __future__ import annotations

import collections
import select
import socket
import sys
import time
import zlib
from typing import Any

import numpy as np

from turbo_lab.network.pacing import TokenBucket
from turbo_lab.turbo.board import Board
from turbo_lab.turbo.nodes import Send
from turbo_lab.turbo.packet import WIRE_BYTES, PacketError, Stream, decode
from turbo_lab.turbo.strategies import build_node, nodes_of
from turbo_lab.turbo.work import MACHINE, Faults, Job

SEND_BUFFER_BYTES = 4608  # the least Linux allows: what waits, waits here and not in a queue
RECEIVE_BUFFER_BYTES = 1 << 22
POLL_S = 0.005
IDLE_S = 0.05  # after so long without a datagram, held-back ones are let go
PACED_BURST_BYTES = 1500


class Wire:
    """One UDP socket, its own bytes counted. Paced where no kernel shapes the link."""

    def __init__(self, address: tuple[str, int], *, rate_bytes_s: float | None) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self.socket.bind(address)
        self.socket.setblocking(False)
        self._out, self._in = (_bucket(rate_bytes_s) for _ in range(2))
        self._out_free_s = self._in_free_s = 0.0
        self.queue: collections.deque[tuple[tuple[str, int], bytes]] = collections.deque()
        self.sent_bytes = self.received_bytes = self.datagrams = 0
        self.last_s = 0.0

    def wait(self, timeout_s: float) -> None:
        """Sleep until something can be done, at most ``timeout_s``."""
        now_s = time.monotonic()
        may_send = bool(self.queue) and now_s >= self._out_free_s
        for free_s in (self._out_free_s if self.queue else 0.0, self._in_free_s):
            if free_s > now_s:
                timeout_s = min(timeout_s, free_s - now_s)
        readers = [self.socket] if now_s >= self._in_free_s else []
        select.select(readers, [self.socket] if may_send else [], [], timeout_s)

    def flush(self) -> None:
        """Send what the link takes now."""
        while self.queue and time.monotonic() >= self._out_free_s:
            target, data = self.queue[0]
            try:
                self.socket.sendto(data, target)
            except BlockingIOError:
                return
            self.queue.popleft()
            self.sent_bytes += len(data)
            self.datagrams += 1
            self._out_free_s = _after(self._out, len(data))

    def take(self) -> bytes | None:
        """The next datagram that has come, or None."""
        if time.monotonic() < self._in_free_s:
            return None
        try:
            data = self.socket.recv(2048)
        except (BlockingIOError, ConnectionRefusedError):
            return None
        self.received_bytes += len(data)
        self.datagrams += 1
        self._in_free_s = _after(self._in, len(data))
        self.last_s = time.monotonic()
        return data


def _bucket(rate_bytes_s: float | None) -> TokenBucket | None:
    if rate_bytes_s is None:
        return None
    return TokenBucket(rate_bytes_s, burst_bytes=PACED_BURST_BYTES, sleep=lambda seconds: None)


def _after(bucket: TokenBucket | None, size_bytes: int) -> float:
    """When the link is free again after a datagram; its headers count."""
    return 0.0 if bucket is None else time.monotonic() + bucket.take(size_bytes + WIRE_BYTES)


class Runner:
    """One machine's part in one job."""

    def __init__(
        self, job: Job, *, index: int, number: int, wire: Wire, addresses: dict[int, Any]
    ) -> None:
        self.job, self.number, self.wire = job, number, wire
        self.addresses = addresses
        self.first_sequence = index * 10_000  # datagrams of another job are nobody's here
        self.node = build_node(job.strategy, number, hosts=job.hosts, machine=MACHINE)
        self.faults = Faults(job, node=number)
        self.foreign = 0

    def post(self, sends: list[Send]) -> None:
        """Queue packets."""
        for target, packet in sends:
            self.wire.queue.append((self.addresses[target], packet.encode()))

    def serve(self, timeout_s: float = POLL_S) -> None:
        """One turn: wait a little, take all that has come, send what goes."""
        self.wire.wait(timeout_s)
        while (data := self.wire.take()) is not None:
            for each in self.faults.pass_on(data):
                self._handle(each)
            self.wire.flush()
        if time.monotonic() - self.wire.last_s > IDLE_S:
            for each in self.faults.flush():
                self._handle(each)
        self.wire.flush()

    def _handle(self, data: bytes) -> None:
        try:
            packet = decode(data)
        except PacketError:
            self.foreign += 1
            return
        if packet.sequence // 10_000 * 10_000 != self.first_sequence:
            self.foreign += 1
            return
        self.post(self.node.receive(packet))

    def layer(self, layer: int, step: int, values: np.ndarray, gammas: np.ndarray) -> None:
        """Enter the parts of one layer, and return when all its results are there."""
        streams = list(self.job.layer_streams(layer, first_sequence=self.first_sequence))
        flat, tops = values.reshape(len(streams), -1).astype(np.int8), gammas.reshape(-1)
        for place, stream in enumerate(streams):
            part = {"values": flat[place].tobytes(), "gamma": int(tops[place])}
            self.post(self.node.offer(stream, step, **part))
        overdue_s = time.monotonic() + self.job.remind_s
        missing = streams
        while missing := [s for s in missing if not self._has(s, step)]:
            if time.monotonic() > overdue_s and not self.wire.queue:
                for stream in missing:
                    self.post(self.node.remind(stream, step))
                overdue_s = time.monotonic() + self.job.remind_s
            self.serve()

    def _has(self, stream: Stream, step: int) -> bool:
        known = self.node.results.get(stream)
        return known is not None and known[0] == step

    def results(self) -> np.ndarray:
        """Value codes of the last step's results, (vectors, dim)."""
        rows = [
            np.frombuffer(self.node.results[stream][1][0], dtype=np.int8)
            for layer in range(self.job.layers)
            for stream in self.job.layer_streams(layer, first_sequence=self.first_sequence)
        ]
        return np.stack(rows).astype(np.int16)


def run_job(runner: Runner, *, index: int, machine: int, board: Board) -> None:
    """Take part in one job from the launcher's start to its end, and report."""
    job, wire = runner.job, runner.wire
    contributes = runner.number < job.hosts
    parts = [job.parts(runner.number, step=s) for s in range(job.steps)] if contributes else []
    while (start_s := board.get(f"start-{index}")) is None:
        runner.serve()
    before = (wire.sent_bytes, wire.received_bytes, wire.datagrams)
    while time.monotonic() < start_s:
        runner.serve(max(0.0, min(POLL_S, start_s - time.monotonic())))
    cpu_s = time.process_time()
    facts: dict[str, Any] = {"layers_s": []}
    for step, (values, gammas) in enumerate(parts):
        for layer in range(job.layers):
            began_s = time.monotonic()
            runner.layer(layer, step, values[layer], gammas[layer])
            facts["layers_s"].append(time.monotonic() - began_s)
    facts["seconds"] = time.monotonic() - start_s
    board.put(f"done-{index}-{machine}")
    while not board.has(f"stop-{index}"):  # others may still need an answer
        runner.serve()
    facts |= {
        "cpu_s": time.process_time() - cpu_s,
        "sent_bytes": wire.sent_bytes - before[0],
        "received_bytes": wire.received_bytes - before[1],
        "datagrams": wire.datagrams - before[2],
        "repeated": runner.node.repeated, "foreign": runner.foreign, "lost": runner.faults.lost,
        "doubled": runner.faults.doubled, "reordered": runner.faults.reordered,
        "contributes": contributes,
        **(_checked(job, runner.results()) if contributes else {}),
    }  # fmt: skip
    board.put(f"facts-{index}-{machine}", facts)


def _checked(job: Job, results: np.ndarray) -> dict[str, Any]:
    """How far the last step's results lie from the exact merge, in steps of a value code."""
    error = np.abs(results - job.exact(step=job.steps - 1))
    return {
        "worst_steps": float(error.max()), "mean_steps": float(error.mean()),
        "in_order": bool((results == job.in_order(step=job.steps - 1)).all()),
        "digest": zlib.crc32(results.tobytes()),
    }  # fmt: skip


def main(argv: list[str]) -> None:
    """See the module."""
    board, machine = Board(argv[0]), int(argv[1])
    plan = board.get("plan")
    addresses = {int(n): tuple(a) for n, a in plan["addresses"].items()}
    wire = Wire(addresses[machine], rate_bytes_s=plan["rates"][machine])
    board.put(f"up-{machine}")
    for index, fields in enumerate(plan["jobs"]):
        job = Job(**fields)
        switch = plan["switch"]
        number = job.hosts if machine == switch else machine
        if number not in nodes_of(job.strategy, hosts=job.hosts) or (
            machine != switch and machine >= job.hosts
        ):
            continue
        known = {**addresses, job.hosts: addresses[switch]}
        runner = Runner(job, index=index, number=number, wire=wire, addresses=known)
        run_job(runner, index=index, machine=machine, board=board)


if __name__ == "__main__":
    main(sys.argv[1:])
