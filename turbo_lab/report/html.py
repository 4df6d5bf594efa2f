"""Self-contained HTML: a page shell and the index of a run. No network, no script.

The pages read well on a phone and follow the reader's light or dark setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template

STYLE = """
:root { color-scheme: light dark; --fg:#1c1e21; --bg:#fff; --soft:#f3f4f6; --line:#d5d8dd;
  --link:#0a58ca; --good:#146c2e; --bad:#b3261e; --warn:#8a5a00; }
@media (prefers-color-scheme: dark) { :root { --fg:#e4e6eb; --bg:#16181c; --soft:#22252b;
  --line:#3a3f47; --link:#8ab4f8; --good:#7bd88f; --bad:#ff8a80; --warn:#ffd479; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 56rem; color: var(--fg); background: var(--bg);
  font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
a { color: var(--link); }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2rem; }
pre, code { font: 0.86rem/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: .6rem .8rem; overflow-x: auto; border-radius: 6px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .7rem .35rem 0; text-align: left;
  vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
img, svg { max-width: 100%; height: auto; }
img { background: #fff; border-radius: 4px; }
.passed, .met { color: var(--good); } .failed, .not-met { color: var(--bad); }
.interrupted, .running, .unmeasured { color: var(--warn); }
div.math { overflow-x: auto; margin: 1rem 0; } .math svg { max-width: none; }
.note { color: var(--fg); opacity: .75; font-size: .9rem; }
"""

SHELL = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>{{ style | safe }}</style>
</head>
<body>
{{ body | safe }}
</body>
</html>
"""

INDEX = """
<h1>Course run</h1>
<p>Status <strong class="{{ page.status }}">{{ page.status }}</strong>, started {{ page.started }},
{{ "%.1f" | format(page.minutes) }} minutes in all.</p>
<div class="scroll"><table>
<thead><tr><th>notebook</th><th>status</th><th class="n">minutes</th>
<th class="n">predictions met</th></tr></thead>
<tbody>
{% for row in page.rows %}<tr><td>
{% if row.link %}<a href="{{ row.link }}">{{ row.id }} {{ row.title }}</a>
{% else %}{{ row.id }} {{ row.title }}{% endif %}<br>
<span class="note">{{ row.question }}</span></td>
<td class="{{ row.status }}">{{ row.status }}</td><td class="n">{{ row.minutes }}</td>
<td class="n">{{ row.predictions }}</td></tr>
{% endfor %}</tbody></table></div>
{% for row in page.rows if row.error %}
<h2>Notebook {{ row.id }} stopped</h2>
<pre>{{ row.error }}</pre>
{% endfor %}
{% for row in page.rows if row.comparison %}
<h2>{{ row.id }} {{ row.title }}: predicted and measured</h2>
{% if row.recorded %}<p class="note">{{ row.recorded }}</p>{% endif %}
{% set published = row.comparison | rejectattr("published", "equalto", "-") | list %}
<div class="scroll"><table>
<thead><tr><th>quantity</th><th>unit</th><th class="n">predicted</th><th class="n">measured</th>
{% if published %}<th class="n">published</th>{% endif %}
<th>verdict</th></tr></thead>
<tbody>
{% for line in row.comparison %}<tr><td>{{ line.name }}</td><td>{{ line.unit }}</td>
<td class="n">{{ line.predicted }}</td><td class="n">{{ line.measured }}</td>
{% if published %}<td class="n">{{ line.published }}</td>{% endif %}

<td class="{{ line.verdict | replace(' ', '-') }}">{{ line.verdict }}
{% if line.reason %}<br><span class="note">{{ line.reason }}</span>{% endif %}</td></tr>
{% endfor %}</tbody></table></div>
{% endfor %}
<h2>Machine and settings</h2>
<div class="scroll"><table><tbody>
{% for name, value in page.facts %}<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}</tbody></table></div>
<p class="note">All samples: <code>records/</code>. The run in numbers:
<a href="summary.json">summary.json</a>.</p>
"""


@dataclass(frozen=True)
class ComparisonLine:
    """One predicted, measured and published value, as text."""

    name: str
    unit: str
    predicted: str
    measured: str
    published: str
    verdict: str
    reason: str


@dataclass(frozen=True)
class IndexRow:
    """One notebook on the index page, as text. ``link`` is None when it has no page."""

    id: str
    title: str
    question: str
    status: str
    minutes: str
    predictions: str
    link: str | None
    error: str
    recorded: str
    comparison: tuple[ComparisonLine, ...]


@dataclass(frozen=True)
class IndexPage:
    """Content of ``index.html``. ``facts`` are (name, value) pairs about machine and settings."""

    status: str
    started: str
    minutes: float
    rows: tuple[IndexRow, ...]
    facts: Sequence[tuple[str, str]]


@cache
def _template(source: str) -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(source)


def render_page(body: str, *, title: str, style: str = "") -> str:
    """A whole HTML document around ``body``, which is trusted HTML; ``title`` is escaped."""
    return _template(SHELL).render(title=title, style=STYLE + style, body=body)


def render_index(page: IndexPage) -> str:
    """The index page of one run. All text is escaped."""
    return render_page(_template(INDEX).render(page=page), title=f"Course run: {page.status}")
