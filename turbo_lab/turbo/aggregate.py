"""What a switch keeps: per (sequence, layer, head) a step, a bitmap, one gamma and one vector.

A part is merged when it comes and then forgotten. The bitmap says whose parts are in, so that a
repeated packet is never merged twice, and a result never leaves before the last part is in.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.packet import Stream
from turbo_lab.turbo.tables import TableMachine


class Outcome(Enum):
    """What became of a part."""

    WAITING = "merged, others are missing"
    COMPLETE = "merged, the last one"
    REPEATED = "was merged before"
    STALE = "of a step that all have left"


@dataclass(slots=True)
class Slot:
    """One merge under way. ``values``: int16 codes; ``bitmap``: bit i for contributor i."""

    bitmap: int
    values: np.ndarray
    gamma: int


class TableRows:
    """The machine's tables cut into rows, so that a packet is merged by two look-ups and an add.

    For 8-bit values only, indexed by the signed byte's unsigned pattern as it lies in a packet.
    Equal to ``TableMachine.merge_pair`` (a test compares them).
    """

    def __init__(self, machine: TableMachine) -> None:
        if machine.value_bits != 8 or machine.gamma_bits > 8:
            raise UsageError(
                f"packets carry 8-bit values and at most 8 bits of gamma, not {machine.value_bits} "
                f"and {machine.gamma_bits}; give the switch a machine that fits"
            )
        self.machine = machine
        self._addends = machine.addends.tolist()
        self._codes = machine.weight_codes.tolist()
        self._top = machine.largest_gamma
        rolled = np.roll(machine.products, -(machine.largest_value + 1), axis=2)
        self._small, self._big = ([row.copy() for row in side] for side in rolled)
        self._identity = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int16)

    def read(self, values: bytes) -> np.ndarray:
        """Value codes of a packet, int16."""
        return self._identity[np.frombuffer(values, dtype=np.uint8)]

    def merge(
        self, values: np.ndarray, gamma: int, arrived: bytes, arrived_gamma: int
    ) -> tuple[np.ndarray, int]:
        """The register's int16 codes and a packet's bytes; the packet counts as first."""
        difference = arrived_gamma - gamma
        delta = abs(difference)
        code = self._codes[delta]
        mine, theirs = (self._small, self._big) if difference >= 0 else (self._big, self._small)
        total = theirs[code][np.frombuffer(arrived, dtype=np.uint8)]
        total = total + mine[code][values & 0xFF]
        merged = np.minimum(np.maximum(total, -128), 127)
        return merged, min(max(gamma, arrived_gamma) + self._addends[delta], self._top)


class Aggregator:
    """The registers of one node.

    Two steps of a stream may be open at once: a host enters step s + 1 only with all results of
    step s, so when step s + 1 is complete everybody has left step s, and it is dropped. Memory is
    therefore bounded by two slots per stream.
    """

    def __init__(self, machine: TableMachine, *, contributors: int) -> None:
        if contributors < 1:
            raise UsageError(f"{contributors} contributors; at least 1 is needed")
        self.rows = TableRows(machine)
        self.whole = (1 << contributors) - 1
        self._slots: dict[Stream, dict[int, Slot]] = {}
        self._newest: dict[Stream, int] = {}

    def add(
        self, stream: Stream, step: int, *, contributor: int, values: bytes, gamma: int
    ) -> Outcome:
        """Merge one part, unless it is in already or its step is over."""
        if step < self._newest.get(stream, 0):
            return Outcome.STALE
        bit = 1 << contributor
        if not bit & self.whole:
            raise UsageError(f"there is no contributor {contributor} here")
        steps = self._slots.setdefault(stream, {})
        slot = steps.get(step)
        if slot is None:
            slot = steps[step] = Slot(bit, self.rows.read(values), gamma)
        elif slot.bitmap & bit:
            return Outcome.REPEATED
        else:
            slot.values, slot.gamma = self.rows.merge(slot.values, slot.gamma, values, gamma)
            slot.bitmap |= bit
        if slot.bitmap != self.whole:
            return Outcome.WAITING
        self._newest[stream] = step
        self._slots[stream] = {s: one for s, one in steps.items() if s >= step}
        return Outcome.COMPLETE

    def merged(self, stream: Stream, step: int) -> tuple[bytes, int]:
        """Values as bytes and gamma of a complete slot."""
        slot = self._slots[stream][step]
        return slot.values.astype(np.int8).tobytes(), slot.gamma

    def bitmap(self, stream: Stream, step: int) -> int:
        """Whose parts are in; 0 where nothing is kept."""
        slot = self._slots.get(stream, {}).get(step)
        return slot.bitmap if slot else 0

    @property
    def slots(self) -> int:
        """Slots that are kept now."""
        return sum(map(len, self._slots.values()))
