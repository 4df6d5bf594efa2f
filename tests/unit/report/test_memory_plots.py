from __future__ import annotations

import pytest

from turbo_lab.report.plots.memory import (
    TokenRow,
    plot_blocks,
    plot_bytes_per_token,
    plot_error_factors,
    plot_gains,
    plot_growth,
    plot_what_fits,
)

pytest.importorskip("matplotlib")
TOKENS = (512, 1024, 2048, 4096)
CURVES = {"plain": (TOKENS, [t * 2**17 for t in TOKENS]), "flat": (TOKENS, [2**27] * 4)}
FACTORS = {"heads": {"a": 4.0, "b": 1.0, "c": None}, "dim": {"a": 0.5, "b": 71.1, "c": 1.07}}


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def drawings():
    yield plot_bytes_per_token([TokenRow("a", 131_072, 131_072), TokenRow("b", 49_152, 24_576)])
    yield plot_growth(CURVES)
    yield plot_error_factors(FACTORS)
    yield plot_blocks(128, longest=640, measured={159: 256})
    yield plot_what_fits({"x": (TOKENS, [(0, 9), (0, 4), (0, 2), (0, 1)])}, chosen_tokens=1024)
    yield plot_gains({"a": (TOKENS, [2.0] * 4), "b": (TOKENS, [1.0, 1.1, 1.3, 1.5])}, ideal=2)


def test_every_figure_names_both_axes_and_draws():
    for ax in drawings():
        has_rows = bool(ax.get_yticklabels()) and not ax.get_ylabel()
        assert ax.get_xlabel() and (ax.get_ylabel() or has_rows), ax
        ax.figure.canvas.draw()


@pytest.mark.parametrize(
    "plot", [plot_growth, lambda c, ax: plot_gains(c, ideal=2, ax=ax)], ids=["growth", "gains"]
)
def test_a_given_axes_is_used_and_returned(plot):
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert plot(CURVES, ax=ax) is ax and len(plt.get_fignums()) == 1


def test_quantities_have_their_units():
    ax = plot_bytes_per_token([TokenRow("b", 49_152, 24_576)])
    assert "[KiB]" in ax.get_xlabel() and "48 KiB" in texts(ax)
    assert "[tokens]" in plot_blocks(128, longest=256).get_ylabel()
    assert "GiB" in plot_growth(CURVES).get_ylabel()


def test_a_token_that_left_the_windows_has_a_dot_of_its_own():
    def open_dots(ax):
        return [
            line
            for line in ax.lines
            if line.get_markerfacecolor() == "white" and len(line.get_xdata())
        ]

    assert len(open_dots(plot_bytes_per_token([TokenRow("b", 49_152, 24_576)]))) == 1
    assert not open_dots(plot_bytes_per_token([TokenRow("a", 131_072, 131_072)]))


def test_the_table_says_ok_only_where_the_formula_is_right():
    assert texts(plot_error_factors(FACTORS)) == ["4×", "ok", "–", "0.50×", "71×", "1.07×"]


def test_an_unmeasured_point_is_not_drawn_and_said():
    ax = plot_blocks(128, longest=640, measured={159: None})
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "the engine's number: unmeasured" in labels and len(ax.lines[-1].get_xdata()) == 0


def test_stairs_are_whole_blocks():
    stairs = plot_blocks(128, longest=300).lines[0]
    assert list(stairs.get_ydata()) == [0, 128, 256, 384]


def test_lengths_at_which_nobody_fits_are_left_out():
    ax = plot_what_fits({"x": (TOKENS, [(0, 9), (0, 4), (0, 0), (0, 0)])})
    high = ax.lines[0].get_ydata()
    assert list(high[:2]) == [9, 4] and all(value != value for value in high[2:])
