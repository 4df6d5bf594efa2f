"""The HTML page of a sweep: load curve with its knees, forest plot, a row per value."""

from __future__ import annotations

from collections.abc import Sequence

from turbo_lab.experiment.arms import measured as measured_in
from turbo_lab.experiment.arms import observed, statistic_of
from turbo_lab.experiment.knees import LoadPoint, latency_knee, load_point, memory_knee
from turbo_lab.experiment.metric_names import metric_name
from turbo_lab.experiment.sweep import CLIENT_KEYS, SweepResult
from turbo_lab.report import bench_text as text
from turbo_lab.report.bench import resource_figure, template
from turbo_lab.report.comparison import forest
from turbo_lab.report.figure import STYLE, drawn
from turbo_lab.report.html import render_page
from turbo_lab.report.plots.bench import plot_load_curve

LOAD_KEYS = ("rate_req_s", "concurrency")

BODY = """
<h1>{{ title }}</h1>
{% if question %}<p>{{ question }}</p>{% endif %}
<div class="scroll"><table><thead><tr><th>{{ key }}</th><th class="n">runs</th>
<th class="n">{{ metric }}</th><th>all runs</th></tr></thead><tbody>
{% for row in rows %}<tr><td>{{ row.value }}</td><td class="n">{{ row.runs }}</td>
<td class="n">{{ row.median }}</td><td>{{ row.all }}</td></tr>
{% endfor %}</tbody></table></div>
{% for line in lines %}<p>{{ line }}</p>
{% endfor %}
{% for figure in figures %}{{ figure | safe }}
{% endfor %}
"""


def load_points(result: SweepResult) -> list[LoadPoint]:
    """One point per load: the run whose latency is the median of its restarts."""
    key = CLIENT_KEYS.get(result.sweep.key, "")
    if key not in LOAD_KEYS:
        return []
    out = []
    for arm in result.arms.values():
        points = [load_point(r, load_key=key) for r in arm.records]
        known = sorted((p for p in points if p.latency_s is not None), key=lambda p: p.latency_s)
        if known:
            out.append(known[len(known) // 2])
    return sorted(out, key=lambda p: p.load)


def knee_lines(points: Sequence[LoadPoint]) -> list[str]:
    """Both knees in words."""
    if not points:
        return []
    latency, memory = latency_knee(points), memory_knee(points)
    told = any(p.memory_bound is not None for p in points)
    no_memory = "none in this range" if told else "unknown: the engine tells no KV usage"
    return [
        f"latency knee: {f'load {latency.load:g}' if latency else 'none in this range'}",
        f"memory knee: {f'load {memory.load:g}' if memory else no_memory}",
    ]


def sweep_rows(result: SweepResult) -> list[dict[str, str]]:
    """One row per value, as text."""
    name = metric_name(result.sweep.metric)
    rows = []
    for value, arm in result.arms.items():
        values = [statistic_of(measured_in(r, name), name) for r in arm.records]
        known = sorted(v for v in values if v is not None)
        middle = known[len(known) // 2] if known else None
        rows.append({
            "value": value, "runs": str(len(arm.records)),
            "median": text.show_value(middle, name.unit),
            "all": ", ".join(text.show_value(v, name.unit) for v in values),
        })  # fmt: skip
    return rows


def summary_lines(result: SweepResult) -> list[str]:
    """Verdicts, knees and failures, one line each."""
    lines = []
    for c in result.comparisons:
        lines += text.comparison_lines(c)[:5]
    lines += knee_lines(load_points(result))
    return lines + [
        f"unmeasured at {f.value}, restart {f.restart}: {f.reason}" for f in result.failures
    ]


def render_sweep(result: SweepResult, *, question: str = "") -> str:
    """The page of a sweep or study."""
    points = load_points(result)
    figures = []
    if len(points) >= 2:
        caption = "Throughput against latency; the numbers at the points are the load."
        figures.append(
            drawn(
                lambda ax: plot_load_curve(
                    points, latency_knee=latency_knee(points), memory_knee=memory_knee(points),
                    ax=ax,
                ),
                caption=caption,
            )
        )  # fmt: skip
    if result.comparisons:
        figures.append(forest(result.comparisons))
    if result.arms:
        last = list(result.arms.values())[-1].records[0]
        figures += [f for f in [resource_figure(observed(last, "resource_curves") or [])] if f]
    title = f"{result.sweep.study}: {result.sweep.key}"
    body = template(BODY).render(
        title=title, question=question, key=result.sweep.key, metric=result.sweep.metric,
        rows=sweep_rows(result), lines=summary_lines(result), figures=figures,
    )  # fmt: skip
    return render_page(body, title=title, style=STYLE)
