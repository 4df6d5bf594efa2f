"""What runs inside the hosts to make and count traffic. Standard library only; run as a script.

Every command prints JSON lines; the last one is its result. Times are of the machine's monotonic
clock, which all hosts share.

    receive   count what comes over some TCP connections, answer each with one byte at its end
    send      one TCP connection: so many bytes, then wait for that answer
    echo      send back every message of one TCP connection, of sizes that the sender announces
    rounds    messages of several sizes to an echo: seconds there and back
    reflect   send back every UDP datagram until the input is quiet
    probe     UDP datagrams of several sizes that no one may cut up: which come back
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import struct
import sys
import threading
import time
from typing import Any

CHUNK_BYTES = 256 * 1024
TOTAL_RETRANSMITS_OFFSET = 100  # in Linux's struct tcp_info
IP_MTU_DISCOVER, PROBE_ONLY = 10, 3  # never cut up, and ignore what the kernel knows of the path
UDP_HEADERS_BYTES = 28


def say(**facts: Any) -> None:
    """One line of JSON, at once."""
    print(json.dumps(facts), flush=True)


def retransmits(connection: socket.socket) -> int | None:
    """Segments that the kernel has sent again on a connection; None where it does not say."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    except (OSError, AttributeError):
        return None
    return struct.unpack_from("I", info, TOTAL_RETRANSMITS_OFFSET)[0] if len(info) >= 104 else None


def receive(args: argparse.Namespace) -> None:
    """See the module."""
    rows: list[dict[str, Any]] = []

    def count(connection: socket.socket) -> None:
        buffer, got, first_s, last_s = bytearray(CHUNK_BYTES), 0, None, None
        with contextlib.suppress(OSError):
            while size := connection.recv_into(buffer):
                last_s = time.monotonic()
                first_s = first_s or last_s
                got += size
            connection.sendall(b"!")
        rows.append({"bytes": got, "first_s": first_s, "last_s": last_s})

    with socket.create_server((args.address, args.port), backlog=64) as door:
        say(listening=door.getsockname()[1])
        threads = []
        for _ in range(args.connections):
            connection, _ = door.accept()
            threads.append(threading.Thread(target=count, args=(connection,)))
            threads[-1].start()
        for thread in threads:
            thread.join()
    say(streams=rows)


def send(args: argparse.Namespace) -> None:
    """See the module."""
    data = memoryview(bytes(CHUNK_BYTES))
    with socket.create_connection((args.address, args.port), timeout=10) as connection:
        connection.settimeout(args.timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        time.sleep(max(0.0, args.at_s - time.monotonic()))
        started_s, left = time.monotonic(), args.bytes
        try:
            while left:
                left -= connection.send(data[: min(left, CHUNK_BYTES)])
            connection.shutdown(socket.SHUT_WR)
            answered = connection.recv(1) == b"!"
        except TimeoutError:
            answered = False
        say(
            bytes=args.bytes, seconds=time.monotonic() - started_s, started_s=started_s,
            answered=answered, retransmits=retransmits(connection),
        )  # fmt: skip


def _exactly(connection: socket.socket, buffer: memoryview) -> bool:
    while len(buffer):
        size = connection.recv_into(buffer)
        if not size:
            return False
        buffer = buffer[size:]
    return True


def echo(args: argparse.Namespace) -> None:
    """See the module."""
    with socket.create_server((args.address, args.port)) as door:
        say(listening=door.getsockname()[1])
        connection, _ = door.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = bytearray(8)
    while _exactly(connection, memoryview(head)):
        message = bytearray(struct.unpack("Q", head)[0])
        if not _exactly(connection, memoryview(message)):
            break
        connection.sendall(message)
    say(done=True)


def rounds(args: argparse.Namespace) -> None:
    """See the module."""
    found: list[tuple[int, float]] = []
    with socket.create_connection((args.address, args.port), timeout=10) as connection:
        connection.settimeout(args.timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for size in args.sizes:
            message, back = struct.pack("Q", size) + bytes(size), bytearray(size)
            for _ in range(args.repeats + 1):
                start_s = time.perf_counter()
                connection.sendall(message)
                _exactly(connection, memoryview(back))
                found.append((size, time.perf_counter() - start_s))
            del found[-args.repeats - 1]  # the first one fills buffers and windows
    say(rounds=found)


def reflect(args: argparse.Namespace) -> None:
    """See the module."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind((args.address, args.port))
        one.settimeout(args.timeout_s)
        say(listening=one.getsockname()[1])
        with contextlib.suppress(TimeoutError):
            while True:
                data, peer = one.recvfrom(65_536)
                one.sendto(data[:4], peer)  # the number only: the way back is always small


def probe(args: argparse.Namespace) -> None:
    """See the module."""
    came: set[int] = set()
    refused: set[int] = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PROBE_ONLY)
        one.settimeout(args.timeout_s)
        for size in args.sizes:
            try:
                packet = struct.pack("I", size).ljust(size - UDP_HEADERS_BYTES, b"\0")
                one.sendto(packet, (args.address, args.port))
            except OSError:
                refused.add(size)  # larger than the own interface takes
        with contextlib.suppress(TimeoutError):
            while len(came) < len(args.sizes) - len(refused):
                came.add(struct.unpack("I", one.recv(4))[0])
    say(came=sorted(came), refused=sorted(refused))


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run in (("receive", receive), ("send", send), ("echo", echo), ("rounds", rounds),
                      ("reflect", reflect), ("probe", probe)):  # fmt: skip
        one = commands.add_parser(name)
        one.set_defaults(run=run)
        one.add_argument("address")
        one.add_argument("port", type=int)
        one.add_argument("--timeout-s", type=float, default=10.0)
        one.add_argument("--connections", type=int, default=1)
        one.add_argument("--bytes", type=int, default=0)
        one.add_argument("--at-s", type=float, default=0.0)
        one.add_argument("--sizes", type=int, nargs="*", default=[])
        one.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(argv)
    args.run(args)


if __name__ == "__main__":
    main(sys.argv[1:])
