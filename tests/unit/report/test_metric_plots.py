"""The metric figures draw what they are given, name their units, and survive missing data."""

from __future__ import annotations

from typing import Any

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.report.plots.metrics import plot_cdf, plot_stream, plot_time_split

plt = pytest.importorskip("matplotlib.pyplot")

STREAM = Timeline(
    scheduled_s=1.0, sent_s=1.0, status_code=200, closed_s=1.2, finish_reason="length",
    saw_done=True, usage={"completion_tokens": 3},
    chunks=((1.1, 0, "role"), (1.1, 1, "content"), (1.18, 2, "content"), (1.2, None, "done")),
)  # fmt: skip


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_stream_shows_each_tools_numbers() -> None:
    tools = {name: summarize([STREAM], convention=name).metrics for name in ("turbo", "sglang")}
    ax = plot_stream(STREAM, tools, labels=["role"])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["the stream", "turbo", "sglang"]
    assert "role" in texts(ax) and "content" in texts(ax)  # a label, and a kind where none is given
    assert {"100", "40", "50", "180", "200"} <= set(texts(ax))  # TPOT 80/2 against 100/2
    assert "ms" in ax.get_xlabel()
    bars = sorted(round(bar.get_x() + bar.get_width()) for bar in ax.patches)
    assert bars == [100, 100, 180, 200]


def test_a_tool_without_an_answer_is_named_so() -> None:
    silent = summarize([Timeline(sent_s=0.0, status_code=500, closed_s=1.0)]).metrics
    ax = plot_stream(STREAM, {"turbo": silent})
    assert texts(ax).count("none") == 4 and not ax.patches


def test_cdf_marks_what_the_sample_certifies() -> None:
    samples = [i / 100 for i in range(1, 65)]  # 64 samples certify P90, not P95
    ax = plot_cdf({"ours": samples, "none": []}, marks=(50, 90, 95), xlabel="E2E [ms]", scale=1e3)
    shown = texts(ax)
    assert [t.startswith(f"P{p}") for t, p in zip(shown, (50, 90, 95), strict=True)] == [True] * 3
    assert [t.endswith("not certified") for t in shown] == [False, False, True]
    steps = ax.lines[0]
    assert steps.get_xdata()[-1] == pytest.approx(640) and steps.get_ydata()[-1] == 100
    legend = [t.get_text() for t in ax.get_legend().get_texts()]
    assert legend == ["ours, n = 64", "none: unmeasured"]
    assert "%" in ax.get_ylabel()


def test_time_split_stacks_to_the_whole() -> None:
    ax = plot_time_split({"a": {"queue": 0.1, "decode": 0.9}, "b": {"queue": 0.5, "decode": 1.5}})
    ends = [bar.get_x() + bar.get_width() for bar in ax.patches]
    assert max(ends) == pytest.approx(2.0)
    assert [t.strip() for t in texts(ax)] == ["1 s", "2 s"]
    assert "seconds" in ax.get_xlabel()


def test_a_negative_part_is_told_and_not_drawn() -> None:
    ax = plot_time_split({"a": {"queue": -0.2, "decode": 1.0}})
    assert "queue below 0" in texts(ax)[0]
    assert all(bar.get_width() >= 0 for bar in ax.patches)


def test_runs_with_other_parts_are_refused_and_none_is_empty() -> None:
    with pytest.raises(UsageError, match="'b' has the parts"):
        plot_time_split({"a": {"queue": 1.0}, "b": {"decode": 1.0}})
    assert not plot_time_split({}).patches


def test_given_axes_are_used() -> None:
    _, ax = plt.subplots()
    assert plot_cdf({"x": [1.0]}, xlabel="s", ax=ax) is ax
