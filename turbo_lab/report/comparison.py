"""The HTML page of comparisons: verdicts, what changed, forest plot, samples."""

from __future__ import annotations

from collections.abc import Sequence

from turbo_lab.experiment.compare import Comparison
from turbo_lab.report import bench_text as text
from turbo_lab.report.bench import template
from turbo_lab.report.figure import STYLE, drawn
from turbo_lab.report.html import render_page
from turbo_lab.report.plots.bench import ForestRow, plot_forest

BODY = """
<h1>{{ title }}</h1>
{{ forest | safe }}
{% for item in items %}<h2>{{ item.label }}: {{ item.verdict }}</h2>
{% for line in item.lines %}<p>{{ line }}</p>
{% endfor %}
<div class="scroll"><table><thead><tr><th>side</th><th>samples</th></tr></thead><tbody>
{% for side, values in item.samples %}<tr><td>{{ side }}</td><td>{{ values }}</td></tr>
{% endfor %}</tbody></table></div>
{% endfor %}
"""


def label(c: Comparison) -> str:
    """What was compared, in a few words."""
    if c.declared is None or c.declared not in c.changed:
        return c.metric
    before, after = c.changes_of(c.declared)
    return f"{c.declared} {before} -> {after}, {c.metric}"


def forest_rows(comparisons: Sequence[Comparison]) -> list[ForestRow]:
    """Rows of the forest plot."""
    return [
        ForestRow(label(c), c.effect, c.interval, c.noise_floor, c.verdict) for c in comparisons
    ]


def forest(comparisons: Sequence[Comparison]) -> str:
    """The forest plot as HTML."""
    rows = forest_rows(comparisons)
    caption = (
        "Difference of the medians with its 95 % bootstrap interval. A verdict other than "
        "'no difference shown' needs the whole interval outside the grey noise floor."
    )
    return drawn(
        lambda ax: plot_forest(rows, ax=ax), caption=caption, height_in=1.3 + 0.45 * len(rows)
    )


def render_comparisons(comparisons: Sequence[Comparison], *, title: str = "Comparison") -> str:
    """One page for one or many comparisons."""
    items = [
        {
            "label": label(c),
            "verdict": c.verdict,
            "lines": text.comparison_lines(c),
            "samples": [
                (f"{'AB'[i]} ({s.unit})", ", ".join(text.show_value(v, c.unit) for v in s.values))
                for i, s in enumerate(c.samples)
            ],
        }
        for c in comparisons
    ]
    body = template(BODY).render(title=title, items=items, forest=forest(comparisons))
    return render_page(body, title=title, style=STYLE)
