"""The self-contained HTML report of one run: opens offline, prints well."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from turbo_lab.core.units import format_seconds
from turbo_lab.experiment.arms import observed
from turbo_lab.metrics.definitions import outcome, ttft_s
from turbo_lab.metrics.percentiles import certified, percentile
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records.environment import describe_machine
from turbo_lab.records.schema import Record
from turbo_lab.report import bench_text as text
from turbo_lab.report.figure import STYLE, drawn, framed, new_figure, svg
from turbo_lab.report.html import render_page
from turbo_lab.report.plots import bench as plots
from turbo_lab.report.plots.request import plot_tokens

if TYPE_CHECKING:
    from jinja2 import Template

BODY = """
<h1>{{ title }}</h1>
<p>{{ head }}</p>
{% for line in lines %}<p>{{ line }}</p>
{% endfor %}
<h2>Latencies</h2>
<div class="scroll"><table><thead><tr><th>metric</th><th class="n">mean</th>
{% for p in points %}<th class="n">p{{ p }}</th>{% endfor %}<th class="n">n</th><th>definition</th>
</tr></thead><tbody>
{% for row in latencies %}<tr><td>{{ row.name }}</td><td class="n">{{ row.mean }}</td>
{% for cell in row.cells %}<td class="n">{{ cell }}</td>{% endfor %}<td class="n">{{ row.n }}</td>
<td class="note">{{ row.definition }}</td></tr>
{% endfor %}</tbody></table></div>
<p class="note">* too few samples to certify this percentile at 99 % confidence. Percentiles by
linear interpolation; failed requests have no latency and are counted above.</p>
<h2>Validity gates</h2>
<div class="scroll"><table><thead><tr><th>gate</th><th>state</th><th>detail</th></tr></thead><tbody>
{% for gate in gates %}<tr><td>{{ gate.name }}</td><td class="{{ gate.word }}">{{ gate.word }}</td>
<td>{{ gate.detail }}</td></tr>
{% endfor %}</tbody></table></div>
{% for figure in figures %}{{ figure | safe }}
{% endfor %}
<h2>Settings</h2>
<div class="scroll"><table><tbody>
{% for name, value in facts %}<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}</tbody></table></div>
<p class="note">Record digest {{ digest }}. All samples: record.json; all events: requests.jsonl.
</p>
"""


@cache
def template(source: str) -> Template:
    """A Jinja template that escapes all text and refuses missing names."""
    from jinja2 import Environment, StrictUndefined

    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
        source
    )


def render_run(record: Record, timelines: Sequence[Timeline] = ()) -> str:
    """The page of one run. Figures of single requests need their timelines."""
    summary = observed(record, "summary") or {}
    title = f"Benchmark of {record.variables.get('model')}"
    head = (
        f"{summary.get('succeeded')} of {summary.get('attempted')} requests succeeded; verdict: "
        f"{summary.get('verdict')}. Measured {record.created_at} on "
        f"{describe_machine(record.environment)}."
    )
    body = template(BODY).render(
        title=title, head=head, lines=text.rate_lines(record), points=text.POINTS,
        latencies=latency_rows(record), gates=gate_rows(record),
        figures=figures(record, timelines), facts=facts(record), digest=record.digest,
    )  # fmt: skip
    return render_page(body, title=title, style=STYLE)


def latency_rows(record: Record) -> list[dict[str, Any]]:
    """Rows of the latency table, as text."""
    rows = []
    for m in record.measurements:
        known = [v for v in m.samples if v is not None]
        if m.unit != "s" or not known:
            continue
        cells = [
            format_seconds(percentile(known, p)) + ("" if certified(len(known), p) else " *")
            for p in text.POINTS
        ]
        rows.append(
            {"name": m.name, "mean": format_seconds(sum(known) / len(known)), "cells": cells,
             "n": len(known), "definition": m.definition or ""}
        )  # fmt: skip
    return rows


def gate_rows(record: Record) -> list[dict[str, str]]:
    """Rows of the gate table, as text."""
    return [
        {"name": g.name, "word": text.gate_word(g.passed, g.name), "detail": g.detail}
        for g in record.gates
    ]


def facts(record: Record) -> list[tuple[str, str]]:
    """Settings and machine as (name, text)."""
    engine = record.engines[0]
    out = [(name, str(value)) for name, value in record.variables.items() if value is not None]
    out += [
        ("engine", f"{engine.name} {engine.version or ''}"),
        ("served model", str(engine.model)),
    ]
    if engine.command:
        out.append(("server command", " ".join(engine.command)))
    out.append(("machine", describe_machine(record.environment)))
    return out


def figures(record: Record, timelines: Sequence[Timeline]) -> list[str]:
    """CDFs, one request's timeline, resource curves; what has no data is left out."""
    out = []
    samples = {
        m.name.removesuffix("_s"): [v for v in m.samples if v is not None]
        for m in record.measurements
        if m.name in ("ttft_s", "e2e_s")
    }
    if any(samples.values()):
        limits = (observed(record, "slo") or {}).get("limits_s")
        caption = "Latency of all successful requests; a vertical line is an objective."
        out.append(drawn(lambda ax: plots.plot_cdf(samples, limits_s=limits, ax=ax),
                         caption=caption))  # fmt: skip
    if chosen := representative(timelines):
        caption = (
            f"Tokens of request {chosen.request_id}, the one with the median time to first token."
        )
        label = str(chosen.request_id)
        out.append(drawn(lambda ax: plot_tokens({label: chosen}, ax=ax), caption=caption))
    if curves := resource_figure(observed(record, "resource_curves") or []):
        out.append(curves)
    return out


def representative(timelines: Sequence[Timeline]) -> Timeline | None:
    """The successful request with the median TTFT."""
    good = [t for t in timelines if outcome(t).ok and ttft_s(t) is not None]
    good.sort(key=lambda t: ttft_s(t) or 0.0)
    return good[len(good) // 2] if good else None


def resource_figure(rows: Sequence[dict[str, Any]]) -> str | None:
    """All resource panels under each other on one time axis."""
    panels = plots.resource_panels(plots.with_gpu_columns(rows))
    if not panels:
        return None
    figure, axes = new_figure(len(panels), height_in=0.6 + 1.5 * len(panels))
    for ax, (axis, panel) in zip(axes, panels.items(), strict=True):
        plots.plot_resource(panel, axis=axis, ax=ax)
    axes[-1].set_xlabel("seconds of the run")
    caption = "Resources during the run, on the client's clock."
    return framed(svg(figure, label=caption), caption)
