"""The self-contained HTML report of one run: opens offline, prints well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from turbo_lab.core.units import format_seconds
from turbo_lab.experiment.arms import observed
from turbo_lab.experiment.gates import BLOCKING
from turbo_lab.metrics.definitions import outcome, ttft_s
from turbo_lab.metrics.percentiles import certified, percentile
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records.environment import describe_machine
from turbo_lab.records.schema import Record
from turbo_lab.report import bench_text as text
from turbo_lab.report.figure import STYLE, drawn
from turbo_lab.report.html import render_page
from turbo_lab.report.plots import bench as plots
from turbo_lab.report.plots.resources import (
    Panels,
    missing_panels,
    plot_panels,
    resource_panels,
)
from turbo_lab.report.workload_text import workload_html

if TYPE_CHECKING:
    from jinja2 import Template

BODY = """
<h1>{{ title }}</h1>
<div class="verdict {{ mood }}"><p><strong>{{ verdict }}</strong></p></div>
<p class="note">{{ measured }}</p>
<h2>The run in numbers</h2>
<div class="scroll facts"><table><tbody>
{% for name, value in numbers %}<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}</tbody></table></div>
<h2>Latencies</h2>
{% if latencies %}
<div class="scroll"><table><thead><tr><th>metric</th><th class="n">mean</th>
{% for p in points %}<th class="n">p{{ p }}</th>{% endfor %}<th class="n">n</th><th>definition</th>
</tr></thead><tbody>
{% for row in latencies %}<tr><td>{{ row.name }}</td><td class="n">{{ row.mean }}</td>
{% for cell in row.cells %}<td class="n">{{ cell }}</td>{% endfor %}<td class="n">{{ row.n }}</td>
<td class="note">{{ row.definition }}</td></tr>
{% endfor %}</tbody></table></div>
<p class="note">* too few samples to certify this percentile at 99 % confidence. Percentiles by
linear interpolation; failed requests have no latency and are counted above.</p>
{% else %}<p>No request succeeded, so there is no latency to show.</p>
{% endif %}
{% for figure in latency_figures %}{{ figure | safe }}
{% endfor %}
{{ groups | safe }}
<h2>Validity gates</h2>
<div class="scroll"><table><thead><tr><th>gate</th><th>state</th><th>detail</th></tr></thead><tbody>
{% for gate in gates %}<tr><td>{{ gate.name }}</td><td class="{{ gate.word }}">{{ gate.word }}</td>
<td>{{ gate.detail }}</td></tr>
{% endfor %}</tbody></table></div>
<h2>Resources</h2>
{{ resources | safe }}
<h2>Settings</h2>
<div class="scroll facts"><table><tbody>
{% for name, value in facts %}<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}</tbody></table></div>
<p class="note">Record digest {{ digest }}. All samples: record.json; all events: requests.jsonl.
Check it: turbo-lab verify FOLDER.</p>
"""
# One panel each, the table has all. An open loop has the second, a closed one shows the third.
SHOWN = ("ttft_s", "ttft_scheduled_s", "itl_s", "tpot_s", "e2e_s")


@cache
def template(source: str) -> Template:
    """A Jinja template that escapes all text and refuses missing names."""
    from jinja2 import Environment, StrictUndefined

    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
        source
    )


def render_run(record: Record, timelines: Sequence[Timeline] = ()) -> str:
    """The page of one run. Figures of single requests need their timelines."""
    title = f"Benchmark of {record.variables.get('model')}"
    mood, verdict = run_verdict(record)
    body = template(BODY).render(
        title=title, mood=mood, verdict=verdict, numbers=text.rate_rows(record),
        measured=f"Measured {text.readable_time(record.created_at)} on "
        f"{describe_machine(record.environment)}.",
        points=text.POINTS, latencies=latency_rows(record), gates=gate_rows(record),
        latency_figures=latency_figures(record, timelines), groups=workload_html(record),
        resources=resource_section(observed(record, "resource_curves") or [], timelines),
        facts=facts(record), digest=record.digest,
    )  # fmt: skip
    return render_page(body, title=title, style=STYLE)


def run_verdict(record: Record) -> tuple[str, str]:
    """Colour class and sentence: how many succeeded, and whether the numbers may be compared."""
    summary = observed(record, "summary") or {}
    done = f"{summary.get('succeeded')} of {summary.get('attempted')} requests succeeded"
    failed = [g.name for g in record.gates if g.passed is False and g.name in BLOCKING]
    warned = [g.name for g in record.gates if g.passed is False and g.name not in BLOCKING]
    if summary.get("verdict") == "no data":
        why = next((g.detail for g in record.gates if g.name == "failures"), "")
        return "bad", f"{done}: no data. {why}."
    if failed:
        return "bad", f"{done}. Not comparable with other runs: gate {', '.join(failed)} failed."
    if warned:
        return "warn", f"{done}. All blocking gates passed; warning: {', '.join(warned)}."
    return "good", f"{done}. No validity gate failed."


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
            {"name": text.plain(m.name), "mean": format_seconds(sum(known) / len(known)),
             "cells": cells, "n": len(known), "definition": m.definition or ""}
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
    out = [("command", " ".join(record.command)), *out] if record.command else out
    out += [
        ("engine", f"{engine.name} {engine.version or ''}"),
        ("served model", str(engine.model)),
    ]
    if engine.command:
        out.append(("server command", " ".join(engine.command)))
    out.append(("machine", describe_machine(record.environment)))
    return out


def latency_figures(record: Record, timelines: Sequence[Timeline]) -> list[str]:
    """CDFs and one request from inside; what has no data is left out."""
    found = {m.name: [v for v in m.samples if v is not None] for m in record.measurements}
    names = [n for n in SHOWN if n != "itl_s" or not found.get("ttft_scheduled_s")]
    samples = {text.plain(name): found[name] for name in names if found.get(name)}
    limits = (observed(record, "slo") or {}).get("limits_s") or {}
    out = [cdf_figure(samples, limits)] if samples else []
    if chosen := representative(timelines):
        out.append(request_figure(chosen))
    return out


def cdf_figure(
    samples_s: Mapping[str, Sequence[float]], limits_s: Mapping[str, float] | None = None
) -> str:
    """A panel per latency: its cumulative distribution, percentiles and objective."""
    names, limits = list(samples_s), limits_s or {}
    rows = (len(names) + 1) // 2

    def draw(axes: Sequence[Any]) -> None:
        for ax, name in zip(axes, names, strict=False):
            plots.plot_latency(samples_s[name], name=name, limit_s=limits.get(name), ax=ax)
        for ax in axes[len(names) :]:
            ax.set_axis_off()

    caption = (
        "Share of the successful requests that took at most so long. Points: p50, p95, p99; a "
        "hollow one with * stands on too few samples to be certified. Dashed: the objective."
    )
    refuted = (
        "Refuted by a repeat of the run (turbo-lab verify) whose curve lies elsewhere by more than "
        "the noise floor."
    )
    return drawn(
        draw, caption=caption, refuted=refuted, alt=plots.latency_words(samples_s),
        shape=(rows, 2), height_in=2.3 * rows + 0.1,
    )  # fmt: skip


def request_figure(chosen: Timeline) -> str:
    """The tokens of one request over time."""
    gap = plots.longest_gap_s(chosen)
    pause = f" Its longest pause between two chunks: {format_seconds(gap)}." if gap else ""
    caption = (
        f"Request {chosen.request_id}, the one with the median time to first token, from sending "
        f"on.{pause}"
    )
    refuted = (
        "A steady stream is a straight staircase; a flat stretch is a stall of server, network or "
        "client (the gate 'client' tells which of them is not to blame)."
    )
    return drawn(
        lambda axes: plots.plot_request(chosen, ax=axes[0]), caption=caption, refuted=refuted,
        alt=f"Tokens of request {chosen.request_id} over the time since it was sent.{pause}",
    )  # fmt: skip


def representative(timelines: Sequence[Timeline]) -> Timeline | None:
    """The successful request with the median TTFT."""
    good = [t for t in timelines if outcome(t).ok and ttft_s(t) is not None]
    good.sort(key=lambda t: ttft_s(t) or 0.0)
    return good[len(good) // 2] if good else None


def resource_section(rows: Sequence[Mapping[str, Any]], timelines: Sequence[Timeline] = ()) -> str:
    """All resource panels under each other on one time axis, and what could not be measured."""
    panels = resource_panels(rows, timelines)
    if not panels:
        why = "the run was shorter than two samples" if rows else "nothing was sampled"
        return f"<p>No resource curves: {why}.</p>"
    missing = missing_panels(panels)
    note = f"<p class='note'>Unmeasured here: {', '.join(missing)}.</p>" if missing else ""
    return panels_figure(panels, caption="Resources during the run, on the client's clock.") + note


def panels_figure(
    panels: Panels, *, caption: str, spans: Sequence[tuple[str, float]] = (),
    xlabel: str = "seconds of the run",
) -> str:  # fmt: skip
    """Resource panels as one figure."""
    refuted = (
        "If the client's line comes near one core, the client was measured and not the server."
    )
    words = [
        f"{' '.join(axis.split())} {line.label} up to {max(known):.3g}"
        for axis, lines in panels.items()
        for line in lines
        if (known := [v for v in line.values if v == v])
    ]
    return drawn(
        lambda axes: plot_panels(panels, axes, spans=spans, xlabel=xlabel), caption=caption,
        refuted=refuted, alt=f"{caption} {'; '.join(words)}", shape=(len(panels), 1),
        height_in=0.5 + 1.0 * len(panels),
    )  # fmt: skip
