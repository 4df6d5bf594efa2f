"""The HTML page of a sweep: load curve with its knees, forest plot, a row per value."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from turbo_lab.experiment.arms import measured as measured_in
from turbo_lab.experiment.arms import observed, statistic_of
from turbo_lab.experiment.compare import Comparison
from turbo_lab.experiment.knees import (
    LoadPoint,
    all_points,
    closed_loop,
    load_knee,
    load_points,
    memory_knee,
)
from turbo_lab.experiment.metric_names import metric_name
from turbo_lab.experiment.sweep import SweepResult
from turbo_lab.report import comparison_text as text
from turbo_lab.report.bench import panels_figure, template
from turbo_lab.report.comparison import forest, label
from turbo_lab.report.comparison_text import cause_words, floor_words, notes
from turbo_lab.report.figure import STYLE, drawn
from turbo_lab.report.html import render_page
from turbo_lab.report.plots.compare import plot_load_curve
from turbo_lab.report.plots.resources import end_to_end, resource_panels

BODY = """
<h1>{{ title }}</h1>
{% if question %}<p>{{ question }}</p>{% endif %}
<p class="note">{{ how }}</p>
<div class="scroll"><table><thead><tr><th>{{ key }}</th><th class="n">{{ metric }}</th>
<th class="n">difference to {{ first }}</th>
<th class="n">95 % interval</th><th>verdict</th>{% if many %}<th>all runs</th>{% endif %}
</tr></thead><tbody>
{% for row in rows %}<tr><td>{{ row.value }}</td><td class="n">{{ row.median }}</td>
<td class="n">{{ row.effect }}</td>
<td class="n">{{ row.interval }}</td><td>{{ row.verdict }}</td>
{% if many %}<td class="note">{{ row.all }}</td>{% endif %}</tr>
{% endfor %}</tbody></table></div>
{% if lines %}<ul>
{% for line in lines %}<li>{{ line }}</li>
{% endfor %}</ul>{% endif %}
{% for figure in figures %}{{ figure | safe }}
{% endfor %}
"""
BEND = "where latency begins to grow faster than the load"
MOST_POWER = "the number of users with the most throughput per second of latency"
MOST_PANELS_RUNS = 8  # More runs side by side are no longer told apart.


def knee_lines(points: Sequence[LoadPoint], *, closed_loop: bool) -> list[str]:
    """Both knees in words; ``closed_loop`` where the load is a number of users."""
    if not points:
        return []
    latency, memory = load_knee(points, closed_loop=closed_loop), memory_knee(points)
    told = any(p.memory_bound is not None for p in points)
    no_memory = "none in this range" if told else "unknown: the engine tells no KV usage"
    return [
        f"latency knee: {f'load {latency.load:g}' if latency else 'none in this range'}",
        f"memory knee: {f'load {memory.load:g}' if memory else no_memory}",
    ]


def sweep_rows(result: SweepResult) -> list[dict[str, str]]:
    """One row per value, as text."""
    name = metric_name(result.sweep.metric)
    compared = {c.arms[1]: c for c in result.comparisons}
    rows = []
    for value, arm in result.arms.items():
        values = [statistic_of(measured_in(r, name), name) for r in arm.records]
        known = [v for v in values if v is not None]
        found = compared.get(arm.path)
        told = found is not None and found.effect is not None and found.interval is not None
        rows.append({
            "value": value, "runs": str(len(arm.records)),
            "median": text.show_value(statistics.median(known) if known else None, name.unit),
            "all": ", ".join(text.show_value(v, name.unit) for v in values),
            "effect": text.percent(found.effect) if told else "",
            "interval": " to ".join(map(text.percent, found.interval)) if told else "",
            "verdict": _verdict(found) if found else "the reference",
        })  # fmt: skip
    return rows


def _verdict(found: Comparison) -> str:
    return f"{found.verdict} because of {found.declared}" if found.attributable else found.verdict


def summary_lines(result: SweepResult) -> list[str]:
    """Causes, knees, failures and what all verdicts are to be read with, one line each."""
    lines = knee_lines(load_points(result), closed_loop=closed_loop(result))
    heads = {id(c): label(c, metric=False) for c in result.comparisons}
    open_causes = [c for c in result.comparisons if cause_words(c) and not c.attributable]
    lines += [f"{heads[id(c)]}: {cause_words(c)}" for c in open_causes]
    floors = dict.fromkeys(floor_words(c) for c in result.comparisons)
    lines += [f"noise floor: {words}" for words in floors]
    shared: dict[str, list[str]] = {}
    for c in result.comparisons:
        for note in (*c.reasons, *notes(c)):
            shared.setdefault(note, []).append(heads[id(c)])
    for note, where in shared.items():
        everywhere = len(where) == len(result.comparisons)
        lines.append(note if everywhere else f"{', '.join(where)}: {note}")
    return lines + [
        f"unmeasured at {f.value}, "
        + (f"restart {f.restart}: " if f.restart else "comparison: ")
        + f.reason
        for f in result.failures
    ]


def render_sweep(result: SweepResult, *, question: str = "") -> str:
    """The page of a sweep or study."""
    sweep, rows = result.sweep, sweep_rows(result)
    title = f"{sweep.study}: {text.plain_metric(str(metric_name(sweep.metric)))} by {sweep.key}"
    how = (
        f"Runs per value: {sweep.restarts}, in counterbalanced order; each value against "
        f"{sweep.key}={sweep.values[0]}. {_basis(result)}"
    )
    body = template(BODY).render(
        title=title, question=question, key=sweep.key, how=how, first=sweep.values[0],
        metric=text.plain_metric(str(metric_name(sweep.metric))), rows=rows,
        many=any(len(arm.records) > 1 for arm in result.arms.values()),
        lines=summary_lines(result), figures=figures(result),
    )  # fmt: skip
    return render_page(body, title=title, style=STYLE)


def _basis(result: SweepResult) -> str:
    """What one sample of the differences is."""
    units = sorted({c.samples[1].unit for c in result.comparisons})
    return f"Differences and intervals are over {' or '.join(units)}." if units else ""


def figures(result: SweepResult) -> list[str]:
    """Load curve with its knees and the resources under it, then the forest plot."""
    out, points = [], load_points(result)
    if len(points) >= 2:
        out.append(load_figure(result, points))
    if curves := resources_figure(result):
        out.append(curves)
    if result.comparisons:
        out.append(forest(result.comparisons))
    return out


def load_figure(result: SweepResult, points: Sequence[LoadPoint]) -> str:
    """Throughput against latency."""
    users = closed_loop(result)
    latency, memory = load_knee(points, closed_loop=users), memory_knee(points)
    told = any(p.memory_bound is not None for p in points)
    why_not = "none in this range" if told else "unknown, the engine tells no KV usage"
    runs = all_points(result)
    others = runs if len(runs) > len(points) else []
    caption = (
        f"Throughput against latency; the numbers are the load ({result.sweep.key}). Latency knee: "
        f"{MOST_POWER if users else BEND}. Memory knee: the first load at which "
        "the KV cache was at least 95 % full or requests were preempted."
        + (" Pale: further runs." if others else "")
    )
    refuted = (
        "A knee is refuted by a sweep with loads closer together around it that shows no bend "
        "there, or no full cache."
    )
    words = [f"load {p.load:g}: {text.show_value(p.throughput_tok_s, 'tok/s')} at "
             f"{text.show_value(p.latency_s, 's')}" for p in points]  # fmt: skip
    return drawn(
        lambda axes: plot_load_curve(
            points, latency_knee=latency, memory_knee=memory, no_memory_knee=why_not,
            others=others, ax=axes[0],
        ),
        caption=caption, refuted=refuted, alt=f"Load curve. {'; '.join(words)}. "
        f"{'; '.join(knee_lines(points, closed_loop=users))}.", height_in=3.3,
    )  # fmt: skip


def resources_figure(result: SweepResult) -> str | None:
    """The resource curves of one run per value, put end to end on one clock."""
    parts = []
    for value, arm in list(result.arms.items())[:MOST_PANELS_RUNS]:
        rows = observed(arm.records[0], "resource_curves") or []
        if panels := resource_panels(rows):
            parts.append((str(value), panels))
    if not parts:
        return None
    panels, spans = end_to_end(parts)
    return panels_figure(
        panels, spans=spans, xlabel="seconds, the runs put end to end",
        caption=f"Resources of the first run at each {result.sweep.key} (named above), on the "
        "client's clock, put end to end.",
    )  # fmt: skip
