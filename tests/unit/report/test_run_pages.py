"""Pages of runs, sweeps and comparisons: whole, offline, and sensible where data is missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.experiment.arms import Arm
from turbo_lab.experiment.compare import compare
from turbo_lab.experiment.knees import LoadPoint
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.report import comparison_text
from turbo_lab.report.bench import render_run, resource_section
from turbo_lab.report.bench_text import plain, readable, readable_time
from turbo_lab.report.comparison import render_comparisons
from turbo_lab.report.figure import drawn
from turbo_lab.report.plots import resources
from turbo_lab.report.plots.bench import plot_latency, plot_request
from turbo_lab.report.plots.compare import ForestRow, plot_forest, plot_load_curve

from ..experiment.conftest import made_run

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def closed():
    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def runs(home: Path) -> dict[str, Any]:
    return {
        "a": made_run(home / "a", declared={"speed": 1.0}, slo={"ttft": 0.5}),
        "b": made_run(home / "b", slower=1.3, seed=1, declared={"speed": 1.3}),
    }


def rows(count: int = 6, **engine: Sequence[float]) -> list[dict[str, Any]]:
    """Resource samples every half second, and the last one right behind its neighbour."""
    times = [100.0 + 0.5 * i for i in range(count - 1)]
    times.append(times[-1] + 0.01)
    return [
        {
            "t_s": t, "page_cache_bytes": 2**30, "net_sent_bytes": 10**6 * i,
            "net_received_bytes": 0, "gpus": [],
            "processes": {"client": {"cores": 50.0 if i == count - 1 else 0.1}},
            "engine": {name: values[i] for name, values in engine.items()},
        }
        for i, t in enumerate(times)
    ]  # fmt: skip


def figures(page: str) -> list[str]:
    return re.findall(r'<svg role="img" aria-label="([^"]*)"', page)


def test_a_run_page_says_what_it_is_and_describes_its_figures(runs):
    run = runs["a"]
    page = render_run(run.record, run.evidence.timelines)
    assert "30 of 30 requests succeeded. No validity gate failed." in page
    shown = figures(page)
    assert len(shown) == 2 and "median 50." in shown[0] and "r000" in shown[1]
    assert page.count("Refuted by") == 1 and "turbo-lab verify" in page
    assert "objective 500 ms" in page and "<script" not in page
    assert "No resource curves: nothing was sampled." in page
    assert "nan" not in re.sub(r"<[^>]*>", "", page).lower().split()


def test_failures_head_the_page(runs):
    record = runs["a"].record
    gates = [g.model_copy(update={"passed": False}) if g.name == "failures" else g
             for g in record.gates]  # fmt: skip
    page = render_run(record.model_copy(update={"gates": tuple(gates)}))
    assert "Not comparable with other runs: gate failures failed." in page
    assert '<div class="verdict bad">' in page


def test_nothing_measured_still_makes_a_page(runs):
    record = runs["a"].record
    empty = [m.model_copy(update={"samples": (), "value": None, "reason": "no data"})
             for m in record.measurements]  # fmt: skip
    none = {"succeeded": 0, "attempted": 3, "verdict": "no data", "quantities": {}}
    observations = [o.model_copy(update={"data": none}) if o.name == "summary" else o
                    for o in record.observations]  # fmt: skip
    changed = {"measurements": tuple(empty), "observations": tuple(observations)}
    page = render_run(record.model_copy(update=changed))
    assert "0 of 3 requests succeeded: no data. 0 of 30 requests failed." in page and not figures(
        page
    )
    assert "No request succeeded, so there is no latency to show." in page


def test_resource_panels_take_what_is_there_and_name_the_rest():
    panels = resources.resource_panels(
        rows(**{"vllm:num_requests_running": range(6), "vllm:kv_cache_usage_perc": [0.5] * 6})
    )
    (client,) = panels["processor\n[cores]"]
    assert max(client.values) == 0.1, "a rate over 10 ms is no rate"
    assert panels["KV cache\nin use [%]"][0].values == [50.0] * 6
    sent = next(line for line in panels["network, all\n[MB/s]"] if line.label == "sent")
    assert sent.values == pytest.approx([2.0] * 4)
    assert resources.missing_panels(panels) == ["server memory"]
    assert "Unmeasured here: server memory, requests in the engine, KV cache in use" in (
        resource_section(rows())
    )
    assert "shorter than two samples" in resource_section(rows()[:1])


def test_every_gpu_has_its_line():
    cards = [{"utilisation_percent": 50 + i, "power_w": 300.0, "memory_used_bytes": 2**30 * (1 + i),
              "sm_clock_mhz": None} for i in range(2)]  # fmt: skip
    panels = resources.resource_panels([{**row, "gpus": cards} for row in rows()])
    assert [line.label for line in panels["GPU busy\n[%]"]] == ["GPU 0", "GPU 1"]
    assert panels["GPU memory\n[GiB]"][1].values == [2.0] * 6
    assert "GPU clock\n[MHz]" not in panels, "what the card does not tell is not drawn"


def test_tokens_received_are_counted_between_the_samples():
    chunks = [(100.2 + 0.1 * i, 3, "content") for i in range(10)]
    line = resources.received(rows(), [Timeline(sent_s=100.0, chunks=chunks, closed_s=102.0)])
    assert line is not None and sum(line.values) * 0.5 == pytest.approx(30)
    assert resources.received(rows(), []) is None
    other_clock = Timeline(sent_s=1.0, chunks=[(1.1, 1, "content")], closed_s=2.0)
    assert resources.received(rows(), [other_clock]) is None


def test_runs_are_put_end_to_end():
    panels = resources.resource_panels(rows())
    joined, ends = resources.end_to_end([("1", panels), ("2", panels)])
    assert [label for label, _ in ends] == ["1", "2"]
    assert ends[1][1] == pytest.approx(2 * ends[0][1])
    times = [t for t in joined["page cache\n[GiB]"][0].times_s if t == t]
    assert times == sorted(times) and len(times) == 12


def test_a_latency_panel_marks_its_objective_and_its_doubt():
    ax = plot_latency([0.1, 0.2, 0.3], name="ttft", limit_s=0.25)
    words = ax.texts[0].get_text().split("\n")
    assert words == ["p50 200 *", "p95 290 *", "p99 298 *"]
    assert ax.get_xlabel() == "ttft in ms"
    assert plot_latency([0.5, 2.0], name="e2e").get_xlabel() == "e2e in s"


def test_one_request_with_and_without_token_counts():
    chunks = [(0.5 + 0.1 * i, 1, "content") for i in range(4)]
    ax = plot_request(Timeline(sent_s=0.0, chunks=chunks, closed_s=1.0))
    assert ax.get_title(loc="left") == (
        "first chunk after 500.0 ms, then 3 more in 300.0 ms (100.0 ms each)"
    )
    uncounted = [(t, None, kind) for t, _, kind in chunks]
    ax = plot_request(Timeline(sent_s=0.0, chunks=uncounted, closed_s=1.0))
    assert "tokens unknown" in ax.get_ylabel() and ax.lines
    assert not plot_request(Timeline(sent_s=0.0, closed_s=1.0)).lines


def test_both_knees_are_marked_or_their_absence_is_told():
    points = [LoadPoint(1, 10, 0.5), LoadPoint(2, 20, 0.6), LoadPoint(4, None, None)]
    ax = plot_load_curve(points, latency_knee=points[1], no_memory_knee="unknown")
    words = [t.get_text() for t in ax.get_legend().get_texts()]
    assert words == ["latency knee: load 2", "memory knee: unknown"]
    assert [t.get_text() for t in ax.texts] == ["1", "2"]
    assert ax.get_ylabel().endswith("in ms")


def test_forest_shows_floor_interval_verdict_and_direction():
    made = [ForestRow("x 1 → 2", 0.2, (0.15, 0.25), 0.1, "worse"),
            ForestRow("x 1 → 3", None, None, None, "no data")]  # fmt: skip
    ax = plot_forest(made, metric="ttft p50", lower_is_better=True)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["x 1 → 2\nworse", "x 1 → 3\nno data"]
    assert "right is worse" in ax.get_xlabel() and "noise floor" in ax.get_xlabel()
    assert [t.get_text() for t in ax.texts] == ["no data"]
    assert ax.patches[0].get_width() == pytest.approx(20)


def test_the_page_of_a_comparison_names_sides_settings_and_cause(runs, home):
    sides = [Arm(name, (runs[name].record,)) for name in "ab"]
    found = compare(*sides, declared="speed", metric="ttft", folder=home / "noise")
    page = render_comparisons([found])
    assert "B is worse because speed changed from 1.0 to 1.3." in page
    assert "<td>speed</td><td>1.0</td>" in page and '<div class="verdict bad">' in page
    assert figures(page)[0].startswith("Forest plot. speed 1.0 → 1.3: worse, +")
    withheld = compare(*sides, declared=None, metric="ttft", folder=home / "noise")
    assert "because" not in render_comparisons([withheld])


def test_numbers_are_rounded_for_readers():
    assert [readable(v) for v in (0.012345, 7.0412, 136.34, 12345.6, 960.0)] == [
        "0.0123", "7.04", "136.3", "12,346", "960",
    ]  # fmt: skip
    assert [comparison_text.percent(v) for v in (-0.0001, 0.1234)] == ["0.0%", "+12.3%"]
    assert plain("output_rate_tok_s") == "output_rate" and plain("ttft_s") == "ttft"
    assert readable_time("2026-01-02T03:04:05Z") == "2026-01-02 03:04 UTC"
    assert comparison_text.plain_metric("ttft_s.p95") == "ttft p95"


def test_a_figure_keeps_its_words_apart():
    made = drawn(lambda axes: axes[0].plot([1, 2]), caption="A & b", refuted="If <x>.", alt='"q"')
    assert "A &amp; b" in made and "If &lt;x&gt;." in made and 'aria-label="&quot;q&quot;"' in made
