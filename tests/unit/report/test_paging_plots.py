from __future__ import annotations

import pytest

from turbo_lab.estimate.paging import Shares
from turbo_lab.report.plots.paging import (
    plot_block_sizes,
    plot_block_tables,
    plot_hit_rates,
    plot_pool_map,
    plot_saving,
    plot_shares,
    plot_ways,
)

pytest.importorskip("matplotlib")
TABLES = {"a": [4, 7, 2], "b": [4, 7, 9], "c": [11]}
STORED = {"a": 300, "b": 384, "c": 50}


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def drawings():
    yield plot_pool_map({"slabs": {0: ([(0, 40)], 12)}, "pages": {0: ([(8, 8), (0, 8)], 12)}},
                        places=80)  # fmt: skip
    yield plot_shares({"slabs": Shares(0.2, 0.1, 0.6, 0.1), "pages": Shares(0.96, 0.04, 0.0)},
                      running={"slabs": 8, "pages": 90}, predicted={"slabs": 0.21})  # fmt: skip
    yield plot_block_sizes([16, 128], predicted=[0.01, 0.05], counted=[0.01, 0.05],
                           entries=[72, 9])  # fmt: skip
    yield plot_block_tables(TABLES, stored=STORED, block_tokens=128)
    yield plot_saving({256: [0.2], 512: [0.4]}, {128: [0.3]}, law_cold={256: 0.2, 512: 0.4},
                      law_warm={0: 0.4, 128: 0.3}, prompt_tokens=512)  # fmt: skip
    yield plot_hit_rates({3: 1.0, 6: 0.75, 7: 0.0}, {3: 1.0, 6: 0.75}, knee=5)
    yield plot_ways({"in the pool": [0.1, 0.11], "computed again": []},
                    predicted_s={"in the pool": 0.1})  # fmt: skip


def test_every_figure_names_its_axes_and_units() -> None:
    for ax in drawings():
        assert ax.get_xlabel(), ax.get_title()
        assert any(sign in ax.get_xlabel() for sign in ("[", "token", "tenants"))


def test_cells_carry_the_physical_block_and_shared_ones_their_colour() -> None:
    ax = plot_block_tables(TABLES, stored=STORED, block_tokens=128)
    assert sorted(texts(ax)) == sorted(["4", "7", "2", "4", "7", "9", "11"])
    edges = [box.get_edgecolor()[:3] for box in ax.patches if box.get_linewidth() > 0]
    assert len(edges) == 7 and len(set(edges)) == 2
    assert edges.count(edges[1]) != edges.count(edges[-1])


def test_the_last_block_is_filled_only_as_far_as_it_holds_tokens() -> None:
    ax = plot_block_tables({"c": [11]}, stored={"c": 32}, block_tokens=128)
    whole, filled = ax.patches
    assert filled.get_width() == pytest.approx(whole.get_width() / 4)


def test_shares_fill_the_bar_and_the_legend_says_who_predicted() -> None:
    ax = plot_shares({"x": Shares(0.2, 0.1, 0.6, 0.1)}, running={"x": 8}, predicted={"x": 0.3})
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(100)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "used, by the closed form" in labels


def test_pool_map_paints_each_place_once() -> None:
    ax = plot_pool_map({"pages": {0: ([(8, 8), (0, 8)], 12)}}, places=16)
    assert ax.get_yticklabels()[0].get_text().startswith("pages\n1 ")
    assert ax.get_xlim() == (0, 16)


def test_what_is_unmeasured_says_so() -> None:
    assert "measured: no data" in [
        line.get_label() for line in plot_hit_rates({3: 1.0}, {}, knee=3).lines
    ]
    assert " unmeasured" in texts(plot_ways({"a": []}))
