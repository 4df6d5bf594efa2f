"""Energy counters: a processor's that starts again, cards', and machines that have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from turbo_lab.client import energy
from turbo_lab.client.energy import NvmlCounter, RaplCounter, energy_counter, power_levels
from turbo_lab.core.errors import UnmeasuredError

RANGE_UJ = 1_000_000_000


def package(folder: Path, name: str, microjoules: int) -> Path:
    path = folder / name
    path.mkdir(exist_ok=True)
    (path / "energy_uj").write_text(f"{microjoules}\n")
    (path / "max_energy_range_uj").write_text(str(RANGE_UJ))
    return path


class Cards:
    """Cards that count as they are told."""

    reason = None

    def __init__(self, *readings: list[int | None]) -> None:
        self.readings = list(readings)

    def sample(self) -> list[dict]:
        now = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        return [{"energy_mj": value} for value in now]


def test_packages_are_summed_parts_are_not_and_a_counter_may_start_again(tmp_path):
    package(tmp_path, "intel-rapl:0", 5_000_000)
    package(tmp_path, "intel-rapl:1", RANGE_UJ - 1_000_000)
    package(tmp_path, "intel-rapl:0:0", 4_000_000)
    counter = RaplCounter(tmp_path)
    assert counter.read_j() == 0
    package(tmp_path, "intel-rapl:0", 8_000_000)
    package(tmp_path, "intel-rapl:1", 2_000_000)
    package(tmp_path, "intel-rapl:0:0", 9_000_000)
    assert counter.read_j() == pytest.approx(3 + 3)
    assert counter.read_j() == pytest.approx(6)


def test_cards_are_summed_and_one_that_does_not_count_is_told():
    counter = NvmlCounter(Cards([1000, 500], [3000, 900]))
    assert counter.read_j() == pytest.approx(3.9)
    with pytest.raises(UnmeasuredError, match="no card that counts"):
        NvmlCounter(Cards([1000, None]))


def test_a_machine_without_counters_gives_both_reasons(monkeypatch, tmp_path):
    monkeypatch.setattr(energy, "GpuProbe", lambda: Cards([]))
    monkeypatch.setattr(energy.RaplCounter.__init__, "__defaults__", (tmp_path / "none",))
    with pytest.raises(UnmeasuredError, match=r"none is missing.*no GPU either"):
        energy_counter()


def test_an_unreadable_or_empty_counter_is_told(tmp_path):
    with pytest.raises(UnmeasuredError, match="no processor package"):
        RaplCounter(tmp_path)
    (package(tmp_path, "intel-rapl:0", 1) / "energy_uj").write_text("")
    with pytest.raises(UnmeasuredError, match="energy_uj cannot be read"):
        RaplCounter(tmp_path)


def test_power_at_rest_and_at_work_by_the_counters_growth():
    class Counter:
        source = "test"
        joules = 0.0

        def read_j(self) -> float:
            return self.joules

    counter, now = Counter(), [0.0]

    def spend(seconds: float, watts: float) -> None:
        now[0] += seconds
        counter.joules += seconds * watts

    found = power_levels(
        lambda: spend(4.0, 90.0), counter=counter, idle_s=2.0, clock=lambda: now[0],
        sleep=lambda seconds: spend(seconds, 30.0),
    )  # fmt: skip
    assert found == {"idle_w": 30.0, "busy_w": 90.0, "source": "test"}
    with pytest.raises(UnmeasuredError, match="no time"):
        power_levels(lambda: None, counter=counter, clock=lambda: now[0],
                     sleep=lambda seconds: spend(seconds, 30.0))  # fmt: skip
