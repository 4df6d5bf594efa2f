"""The report of a trial on one page, and its figures."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

pytest.importorskip("matplotlib")

from turbo_lab.experiment import trial_verdict as verdicts
from turbo_lab.experiment.regression import GateRun
from turbo_lab.report.plots.trial import plot_amdahl, plot_restarts, plot_stages
from turbo_lab.report.trial import cell, finding_lines, forest_rows, quality_words, write_report

from .trials import ANSWERS, load, made_trial


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    trial = load(folder, made_trial(folder, fast=0.8, slow=1.2))
    return trial, verdicts.findings(trial, answers=ANSWERS)


def test_the_page_says_conditions_verdicts_and_decisions(found, tmp_path):
    gates = {"branch": GateRun("turbo-lab compare", 1, ("x", "gate: failed (worse)"))}
    page, plain = (path.read_text() for path in write_report(*found, folder=tmp_path, gates=gates))
    for text in ("fast: adopt", "slow: do not adopt", "30 requests by 10 users", "5 restarts",
                 "exit code 1; gate: failed (worse)", "only setting that differs"):  # fmt: skip
        assert text in page and text in plain.replace("**", ""), text
    assert "<script" not in page and not re.search(r'(src|href)="http', page)
    assert plain.count("\n| ") == 4 and "no data" in plain, "the pool was not told by this server"


def test_a_finding_tells_effect_floor_quality_service_and_cause(found):
    lines = "\n".join(finding_lines(found[1][0]))
    for text in ("throughput: better", "noise floor", "quality guard passed", "100% of the answers",
                 "within the objectives", "kv_cache_dtype is the only"):  # fmt: skip
        assert text in lines, text
    assert [row.label for row in forest_rows(found[1])] == [
        f"{name}, {metric}" for name in ("fast", "slow") for metric in verdicts.METRICS
    ]


def test_equal_arms_and_what_the_engine_derives_are_told(found):
    good = found[1][0]
    equal = replace(good.primary, effect=0.0, verdict="no difference shown")
    lines = finding_lines(replace(good, comparisons={"throughput": equal}))
    assert lines[0].startswith("throughput: no difference shown (0.0%, 95 % interval")
    derived = replace(good.primary, follows=("config.x.async_scheduling", "async_scheduling"))
    lines = finding_lines(replace(good, comparisons={"throughput": derived}))
    assert any(x.endswith("differs; the engine derived async_scheduling from it") for x in lines)


def test_the_guard_says_what_it_lacks(found):
    trial = found[0]
    few = verdicts.quality(trial, "fast", answers=ANSWERS[:10])
    assert "guard cannot tell" in quality_words(few) and "10 questions; 29 could" in quality_words(
        few
    )
    once = quality_words(replace(few, own=None))
    assert "to the letter" in once and "itself" not in once
    assert "too few replies" in quality_words(replace(few, right=None))


@pytest.mark.parametrize(
    ("value", "text"), [(None, "no data"), (93184, "93,184"), (0.2345, "0.234"), (41.26, "41.3")]
)
def test_cells(value, text):
    assert cell(value) == text


def test_the_figures_draw_what_they_are_given():
    stages = {"retrieval": 0.001, "tool": 0.02, "first token": 0.1}
    ax = plot_stages({"long": stages, "short": stages}, predicted={"long": 0.12})
    assert len(ax.patches) == 6 and "predicted" in ax.get_legend_handles_labels()[1]
    ax = plot_amdahl({"all": 0.9, "tools": 0.5}, measured={"all": (2.0, 1.8)})
    assert ax.lines[0].get_ydata()[-1] == pytest.approx(1 / (0.1 + 0.9 / 8))
    ax = plot_restarts({"original": [1.0, 1.1], "fast": [0.8], "gone": []}, label="x", floor=0.1)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["original", "fast"]
    assert ax.get_ylim()[0] == 0
