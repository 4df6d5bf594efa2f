"""A small cache, a prefix in it, and a relay that breaks connections."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from turbo_lab.engines.kv_connector.store import Geometry, Prefix

BLOCK, LAYERS, SHAPE = 4, ("l0", "l1", "l2"), (2, 4, 32)
GEOMETRY = Geometry(LAYERS, "float32", SHAPE, BLOCK)
BLOCK_BYTES = 2 * 4 * 32 * 4


def prefix(name: str, blocks: int = 3, seed: int = 0) -> Prefix:
    numbers = np.random.default_rng(seed).normal(size=(blocks, len(LAYERS), 2 * 4 * 32))
    parts = numbers.astype(np.float32).view(np.uint8)
    return Prefix(name, GEOMETRY, tuple(tuple(layers) for layers in parts))


class Cache:
    """An engine's cache as a dictionary."""

    geometry = GEOMETRY

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], np.ndarray] = {}

    def read(self, block: int, layer: int) -> np.ndarray:
        return self.held[block, layer].copy()

    def write(self, block: int, layer: int, data: np.ndarray) -> None:
        self.held[block, layer] = np.array(data)


def wait_for(condition: Any, *, what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


class Relay:
    """Between the two sides: passes ``most`` bytes on, or spoils byte number ``spoil``."""

    def __init__(self, target: tuple[str, int], *, most: int | None, spoil: int | None) -> None:
        self.target, self.most, self.spoil = target, most, spoil
        self.door = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        inner, _ = self.door.accept()
        with contextlib.suppress(OSError), inner, socket.create_connection(self.target) as outer:
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


@pytest.fixture
def kit() -> SimpleNamespace:
    """What the tests of link and halves share."""
    return SimpleNamespace(prefix=prefix, Cache=Cache, wait_for=wait_for, Relay=Relay)
