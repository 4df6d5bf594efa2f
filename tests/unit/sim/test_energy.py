"""Energy and money of a run: a model of two powers, its range, and what is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.hardware.accelerators import accelerators
from turbo_lab.metrics.cost import PowerModel
from turbo_lab.sim.energy import cost_facts, energy_facts, power_model

RUN = {"busy_s": 30.0, "replica_s": 100.0, "completed": 50, "output_tokens": 1000}


@given(
    busy=st.floats(1, 2000), share=st.floats(0, 1), busy_s=st.floats(0, 1e6),
    idle_s=st.floats(0, 1e6),
)  # fmt: skip
def test_energy_lies_in_its_range_and_grows_with_idle_time(busy, share, busy_s, idle_s):
    power = PowerModel(busy, share * busy)
    up_s = busy_s + idle_s
    low, high = power.range_j(busy_s=busy_s, up_s=up_s)
    energy = power.energy_j(busy_s=busy_s, up_s=up_s)
    assert low * (1 - 1e-9) <= energy <= high * (1 + 1e-9)
    assert power.energy_j(busy_s=busy_s, up_s=up_s + 1) >= energy
    assert PowerModel(busy).energy_j(busy_s=busy_s, up_s=up_s) is None


def test_energy_of_a_request_carries_the_idle_time_of_its_fleet():
    found = energy_facts(RUN, PowerModel(200.0, 50.0))
    assert found["energy_j"] == 30 * 200 + 70 * 50
    assert found["energy_per_request_j"] == 9500 / 50
    assert found["kwh_per_million_output_tokens"] == pytest.approx(9500 / 3.6e6 * 1000)
    assert found["energy_range_per_request_j"] == [120, 400] and found["energy_note"] is None


def test_without_idle_power_there_is_a_range_and_the_reason():
    found = energy_facts(RUN, power_model(name="l4"))
    assert found["energy_per_request_j"] is None and "nvidia-smi" in found["energy_note"]
    assert found["energy_range_per_request_j"] == [30 * 72 / 50, 100 * 72 / 50]
    assert "upper bound" in found["power"]["source"] and "NVIDIA L4" in found["power"]["source"]
    assert energy_facts(RUN, None)["energy_note"].startswith("unmeasured")
    assert power_model() is None


def test_every_sheet_gives_a_power_with_its_source_or_a_reason():
    for sheet in accelerators():
        if sheet.figures["power_w"].value is None:
            with pytest.raises(UsageError, match="--busy-w"):
                power_model(name=sheet.slug)
        else:
            power = power_model(name=sheet.slug, devices=8, idle_w=1.0)
            assert power and power.busy_w == 8 * sheet.figures["power_w"].value
            assert power.idle_w == 8 and sheet.name in power.source


def test_given_watts_win_over_the_sheet_and_impossible_ones_are_refused():
    power = power_model(name="l4", busy_w=60.0, idle_w=10.0, devices=2)
    assert power == PowerModel(120.0, 20.0, "given")
    for wrong in ({"busy_w": 0.0}, {"busy_w": float("inf")}, {"busy_w": 5.0, "idle_w": 6.0},
                  {"idle_w": 6.0}, {"busy_w": 5.0, "devices": 0}):  # fmt: skip
        with pytest.raises(UsageError):
            power_model(**wrong)


def test_money_is_replica_time():
    found = cost_facts(RUN, 36.0)
    assert (found["cost"], found["cost_per_request"]) == (1.0, 0.02)
    assert found["cost_per_million_output_tokens"] == 1000
    assert cost_facts(RUN, None)["cost_note"].startswith("unmeasured")
    with pytest.raises(UsageError, match="nan"):
        cost_facts(RUN, float("nan"))
