from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")

from turbo_lab.report.plots.turbo import plot_cliff, plot_pays, plot_steps, plot_stolen


def drawings():
    yield plot_cliff(
        {"weights": [(6, 1e-3, 0.0, 2e-3), (2, 0.1, 0.05, 0.2)]},
        levels={"int8": 5e-4}, artifact={"artifact": [(8, 0.004), (3, 0.06)]},
    )  # fmt: skip
    yield plot_steps([
        {"hosts": n, "strategy": s, "step_s": n / 4, "fitted_s": n / 5}
        for n in (2, 8) for s in ("ring", "in-network")
    ])  # fmt: skip
    yield plot_stolen({"ours": [(0.0, 1.0), (0.5, 2.4)], "artifact": [(0.28, 1.82)]})
    yield plot_pays([1e3, 1e6], {"ring": [1e-3, 2e-2]}, alone=[1e-4, 1e-1])


def test_every_figure_names_both_axes() -> None:
    for ax in drawings():
        assert ax.get_xlabel() and ax.get_ylabel() and ax.get_legend()


def test_predictions_stand_beside_every_bar() -> None:
    ax = list(drawings())[1]
    assert len(ax.patches) == 4
    assert sum(len(line.get_xdata()) for line in ax.lines) == 4


def test_what_was_not_measured_is_said() -> None:
    assert [t.get_text() for t in plot_steps([]).texts] == ["unmeasured"]
    assert len(plot_stolen({"ours": []}).lines) == 1  # the line of the formula alone


def test_few_bits_lie_on_the_right() -> None:
    low, high = next(drawings()).get_xlim()
    assert low > high
