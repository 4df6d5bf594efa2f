"""The merge on the bundled model's own cache and the study's order of errors; no server."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the cpu environment")

from turbo_lab.turbo.arms import BASE
from turbo_lab.turbo.study import TurboWorkshop
from turbo_lab.turbo.tables import TableMachine

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def workshop() -> TurboWorkshop:
    return TurboWorkshop("smoke", report=lambda line: None)


def test_merging_shards_of_the_real_cache_is_attention(workshop: TurboWorkshop) -> None:
    found = workshop.exactness()
    assert found["own"] < 1e-12  # float64 against float64
    assert found["model"] < 1e-4  # against the model's float32


def test_the_error_budget_holds_on_the_real_cache(workshop: TurboWorkshop) -> None:
    for machine in (BASE, TableMachine(gamma_fraction_bits=3, weight_bits=3)):
        foretold = workshop.foretold_error(machine)["total"]
        assert workshop.measured_error(machine) == pytest.approx(foretold, rel=0.3)


def test_quality_falls_in_the_order_of_the_widths(workshop: TurboWorkshop) -> None:
    rows = {row["name"]: row for row in workshop.rows()}
    assert rows["exact merge"]["kl"] < 1e-5
    assert 1e-5 < rows["int8 values only"]["kl"] < rows["value_bits 4"]["kl"]
    assert rows["tables, base"]["kl"] < 0.5 * rows["value_bits 4"]["kl"]
