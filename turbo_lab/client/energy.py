"""Energy counters of this machine: NVIDIA cards through NVML, else the processor's own (RAPL).

RAPL (running average power limit): Linux shows the energy of a processor package as a counter in
microjoules under ``/sys/class/powercap``, on most machines for root alone, in virtual machines
hardly ever. It is the package's energy, whoever used it; memory, disks and fans are not in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from turbo_lab.client.probes import GpuProbe
from turbo_lab.core.errors import UnmeasuredError

POWERCAP = Path("/sys/class/powercap")
IDLE_S = 2.0


class EnergyCounter(Protocol):
    """A counter of joules. ``source``: what it counts."""

    source: str

    def read_j(self) -> float:
        """Joules since some fixed moment; never less than at an earlier call."""


class RaplCounter:
    """All processor packages together. Raises UnmeasuredError where none can be read.

    A package's counter starts again at its range; as long as less than one range lies between two
    readings (about a minute at full power on large processors), nothing is lost.
    """

    source = "processor packages (RAPL)"

    def __init__(self, folder: Path = POWERCAP) -> None:
        if not folder.is_dir():
            raise UnmeasuredError(f"this machine shows no energy counter ({folder} is missing)")
        # intel-rapl:0 is a package, intel-rapl:0:1 a part of it; AMD's have the same name.
        packages = sorted(p for p in folder.glob("intel-rapl:*") if p.name.count(":") == 1)
        if not packages:
            raise UnmeasuredError(f"{folder} names no processor package")
        self._packages = packages
        self._last = [self._raw(package) for package in packages]
        self._total_uj = 0

    def read_j(self) -> float:
        """Joules since this counter was made."""
        for index, package in enumerate(self._packages):
            now, before = self._raw(package), self._last[index]
            if now < before:
                before -= self._number(package / "max_energy_range_uj")
            self._total_uj += now - before
            self._last[index] = now
        return self._total_uj / 1e6

    def _raw(self, package: Path) -> int:
        return self._number(package / "energy_uj")

    @staticmethod
    def _number(path: Path) -> int:
        try:
            return int(path.read_text())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UnmeasuredError(f"{path} cannot be read: {reason}") from error


class NvmlCounter:
    """All NVIDIA cards together. Raises UnmeasuredError where a card does not count."""

    source = "NVIDIA cards (NVML)"

    def __init__(self, probe: GpuProbe | None = None) -> None:
        self._probe = probe or GpuProbe()
        self.read_j()

    def read_j(self) -> float:
        """Joules since the driver was loaded."""
        cards = self._probe.sample()
        counted = [card["energy_mj"] for card in cards]
        if not cards or any(value is None for value in counted):
            raise UnmeasuredError(self._probe.reason or "there is no card that counts its energy")
        return sum(counted) / 1e3


def energy_counter() -> EnergyCounter:
    """The cards' counter, else the processor's. Raises UnmeasuredError with both reasons."""
    try:
        return NvmlCounter()
    except UnmeasuredError as cards:
        try:
            return RaplCounter()
        except UnmeasuredError as packages:
            raise UnmeasuredError(f"{packages}; no GPU either: {cards}") from packages


def power_levels(
    work: Callable[[], object],
    *,
    counter: EnergyCounter | None = None,
    idle_s: float = IDLE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, float | str]:
    """Mean power in W of this machine at rest and while ``work`` runs: ``idle_w, busy_w, source``.

    Whatever else the machine does is in both. Raises UnmeasuredError without a counter.
    """
    counter = counter or energy_counter()

    def mean_w(run: Callable[[], object]) -> float:
        before, began = counter.read_j(), clock()
        run()
        took_s = clock() - began
        if took_s <= 0:
            raise UnmeasuredError("the work took no time: it has no mean power")
        return (counter.read_j() - before) / took_s

    return {
        "idle_w": mean_w(lambda: sleep(idle_s)),
        "busy_w": mean_w(work),
        "source": counter.source,
    }
