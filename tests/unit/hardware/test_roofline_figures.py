"""The roofline figures: what they show, and that a point above the roof cannot be overlooked."""

from __future__ import annotations

import pytest

from turbo_lab.hardware.ceilings import BandwidthPoint, Ceilings
from turbo_lab.hardware.roofline import Roof, RooflinePoint

matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
matplotlib.use("Agg")

from turbo_lab.report.plots import roofline as figures  # noqa: E402

ROOF = Roof(100e9, 10e9, "test")


def labels(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_points_lie_where_they_were_measured() -> None:
    ax = figures.plot_roofline({"decode": [RooflinePoint("one", 2e9, 1e9, 0.5)]}, roof=ROOF)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    x, y = ax.get_lines()[-1].get_data()
    assert (list(x), list(y)) == ([2.0], [4.0])
    assert labels(ax) == ["roof: test", "decode"]


def test_a_point_above_the_roof_is_marked() -> None:
    ax = figures.plot_roofline({"wrong": [RooflinePoint("one", 2e9, 1e9, 0.5e-3)]}, roof=ROOF)
    assert "above the roof: check the units" in labels(ax)


def test_an_unmeasured_step_is_said_not_drawn_as_zero() -> None:
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    found = figures.plot_step_times([("a", 0.01, 0.02, 0.021), ("b", 0.01, 0.02, None)], ax=ax)
    assert found is ax
    assert [t.get_text() for t in ax.texts] == ["unmeasured"]
    assert len(ax.patches) == 5


def test_bandwidth_is_drawn_with_the_caches() -> None:
    ceilings = Ceilings("test", 1, 1, {"L1d": 2**15, "L1i": 2**15, "L2": 2**20}, {}, {},
                        (BandwidthPoint(2**20, 9e9, 8e9), BandwidthPoint(2**28, 3e9, 2e9)),
                        None, None)  # fmt: skip
    ax = figures.plot_bandwidth(ceilings)
    assert [t.get_text() for t in ax.texts] == ["L1d", "L2"]
