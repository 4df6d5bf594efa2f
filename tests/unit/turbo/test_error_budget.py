"""The error that four roundings must give, against the machine itself."""

from __future__ import annotations

import numpy as np
import pytest

from turbo_lab.turbo.error_budget import error_budget, measured_rms
from turbo_lab.turbo.tables import TableMachine

MACHINES = {
    "artifact's widths": TableMachine(),
    "weights of 3 bits": TableMachine(weight_bits=3),
    "weights of 1 bit": TableMachine(weight_bits=1),
    "gamma without fraction": TableMachine(gamma_fraction_bits=0),
    "values of 6 bits": TableMachine(value_bits=6),
}


def parts(machine: TableMachine, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    values = 0.3 * machine.largest_value * rng.normal(size=(n, 400, 16))
    return np.clip(values, -0.9 * machine.largest_value, None), rng.uniform(-4, 0, (n, 400))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("n", [2, 3, 8])
def test_the_budget_foretells_the_error(name: str, n: int) -> None:
    machine = MACHINES[name]
    values, gammas = parts(machine, n)
    values = np.clip(values, -machine.largest_value, machine.largest_value)
    budget = error_budget(values, gammas, machine=machine)
    found = measured_rms(values, gammas, machine=machine, offset=np.full(400, -10.0))
    assert found == pytest.approx(budget.total, rel=0.35)


def test_the_largest_source_is_the_one_that_was_made_coarse() -> None:
    for name, source in (("weights of 1 bit", "weights"), ("gamma without fraction", "gammas")):
        machine = MACHINES[name]
        assert error_budget(*parts(machine, 4), machine=machine).largest() == source
    fine = TableMachine(weight_bits=10, gamma_bits=12, gamma_fraction_bits=8)
    assert error_budget(*parts(fine, 4), machine=fine).largest() == "products"


def test_one_part_is_only_coded() -> None:
    machine = TableMachine()
    budget = error_budget(*parts(machine, 1), machine=machine)
    assert budget.total == pytest.approx(12**-0.5)
