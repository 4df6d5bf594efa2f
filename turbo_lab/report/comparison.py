"""The HTML page of comparisons: verdicts, what changed, forest plot, samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turbo_lab.experiment.compare import Comparison
from turbo_lab.report import comparison_text as text
from turbo_lab.report.bench import template
from turbo_lab.report.figure import STYLE, drawn
from turbo_lab.report.html import render_page
from turbo_lab.report.plots.compare import ForestRow, plot_forest

BODY = """
<h1>{{ title }}</h1>
{% for item in items %}
{% if items | length > 1 %}<h2>{{ item.label }}</h2>{% endif %}
<div class="verdict {{ item.mood }}"><p><strong>{{ item.verdict }}</strong>{% if item.difference %}:
{{ item.difference }}{% endif %}</p>
{% if item.cause %}<p>{{ item.cause }}</p>{% endif %}</div>
{% endfor %}
{{ forest | safe }}
{% for item in items %}
<h2>{{ item.label }}: in detail</h2>
<div class="scroll facts"><table><tbody>
{% for name, value in item.facts %}<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}</tbody></table></div>
{% if item.changes %}<h3>What differs between the two</h3>
<div class="scroll facts"><table><thead><tr><th>setting</th><th>A</th><th>B</th></tr></thead><tbody>
{% for name, before, after in item.changes %}<tr><td>{{ name }}</td><td>{{ before }}</td>
<td>{{ after }}</td></tr>
{% endfor %}</tbody></table></div>{% endif %}
{% if item.notes %}<h3>To be read with it</h3><ul>
{% for line in item.notes %}<li>{{ line }}</li>
{% endfor %}</ul>{% endif %}
{% endfor %}
"""
MOODS = {"better": "good", "worse": "bad", "cannot tell": "warn", "no data": "warn"}


def label(c: Comparison, *, metric: bool = True) -> str:
    """What was compared, in a few words."""
    if c.declared is None or c.declared not in c.changed:
        return f"{text.plain_metric(c.metric)}, A against B" if metric else "A against B"
    before, after = c.changes_of(c.declared)
    change = f"{c.declared} {shown(before)} \u2192 {shown(after)}"
    return f"{text.plain_metric(c.metric)}, {change}" if metric else change


def shown(value: Any) -> str:
    """A setting's value as the reader typed it; None is a setting that is not there."""
    return "not set" if value is None else str(value)


def forest(comparisons: Sequence[Comparison], *, names: Sequence[str] | None = None) -> str:
    """The forest plot as HTML. ``names`` of the rows replace what was compared in each."""
    metrics = {(c.metric, c.lower_is_better) for c in comparisons}
    one, lower = next(iter(metrics)) if len(metrics) == 1 else ("", None)
    rows = [
        ForestRow(name or label(c, metric=not one), c.effect, c.interval, c.noise_floor, c.verdict)
        for c, name in zip(comparisons, names or [""] * len(comparisons), strict=True)
    ]
    caption = (
        "Difference of the medians with its 95 % bootstrap interval; the grey band is what two "
        "equal runs may differ by. 'Better' and 'worse' need the whole interval outside it."
    )
    refuted = (
        "A verdict is refuted by an A/A comparison (the same setting twice) that differs as much: "
        "it widens the band."
    )
    words = [f"{r.label}: {r.verdict}, {text.difference_words(c)}"
             for r, c in zip(rows, comparisons, strict=True)]  # fmt: skip
    name = text.plain_metric(one) if one else ""
    return drawn(
        lambda axes: plot_forest(rows, metric=name, lower_is_better=lower, ax=axes[0]),
        caption=caption, refuted=refuted, alt=f"Forest plot. {'; '.join(words)}",
        height_in=1.0 + 0.45 * len(rows),
    )  # fmt: skip


def render_comparisons(comparisons: Sequence[Comparison], *, title: str = "Comparison") -> str:
    """One page for one or many comparisons."""
    items = [details(c) for c in comparisons]
    body = template(BODY).render(title=title, items=items, forest=forest(comparisons))
    return render_page(body, title=title, style=STYLE)


def details(c: Comparison) -> dict[str, Any]:
    """One comparison as text for the page."""
    facts = [("A", c.arms[0]), ("B", c.arms[1]), ("metric", c.metric),
             ("declared", c.declared or "nothing (A/A)")]  # fmt: skip
    for side, found, value in zip("AB", c.samples, c.values, strict=True):
        facts.append((f"median of {side}", text.show_value(value, c.unit)))
        values = ", ".join(text.show_value(v, c.unit) for v in found.values)
        facts.append((f"samples of {side}", f"{values or 'none'} ({found.unit})"))
    facts.append(("noise floor", text.floor_words(c)))
    return {
        "label": label(c), "verdict": c.verdict, "mood": MOODS.get(c.verdict, ""),
        "difference": text.difference_words(c), "cause": text.cause_words(c), "facts": facts,
        "changes": [(k, shown(x), shown(y)) for k, (x, y) in c.changes.items()],
        "notes": [*c.reasons, *text.notes(c)],
    }  # fmt: skip
