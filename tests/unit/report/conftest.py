"""Figures are drawn without a window, and none is left open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_window() -> Iterator[None]:
    matplotlib = pytest.importorskip("matplotlib")
    import matplotlib.pyplot as plt

    matplotlib.use("Agg")
    yield
    plt.close("all")
