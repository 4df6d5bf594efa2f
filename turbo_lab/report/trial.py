"""The report of a trial on one page: the table, each verdict with its reason, the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turbo_lab.experiment.compare import Comparison
from turbo_lab.experiment.regression import GateRun
from turbo_lab.experiment.trial import Trial
from turbo_lab.experiment.trial_verdict import (
    LEAST_QUESTIONS,
    QUALITY_MARGIN,
    Finding,
    Quality,
    table,
)
from turbo_lab.records.environment import describe_machine
from turbo_lab.records.store import write_text_atomically
from turbo_lab.report import comparison_text as text
from turbo_lab.report.bench import template
from turbo_lab.report.comparison import forest
from turbo_lab.report.figure import STYLE
from turbo_lab.report.html import render_page
from turbo_lab.report.plots.compare import ForestRow

MOODS = {"adopt": "good", "do not adopt": "bad", "not yet": "warn"}
BODY = """
<h1>{{ title }}</h1>
<p class="note">{{ conditions }}</p>
{% for item in items %}
<div class="verdict {{ item.mood }}"><p><strong>{{ item.name }}: {{ item.decision }}</strong>
({{ item.why }})</p></div>
{% endfor %}
<h2>The table</h2>
<div class="scroll"><table><thead><tr><th>arm</th>
{% for name in columns %}<th class="n">{{ name }}</th>{% endfor %}</tr></thead><tbody>
{% for name, cells in rows %}<tr><th>{{ name }}</th>
{% for cell in cells %}<td class="n">{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>
<h2>Against the original</h2>
{{ forest | safe }}
{% for item in items %}
<h3>{{ item.name }}</h3><ul>
{% for line in item.lines %}<li>{{ line }}</li>
{% endfor %}</ul>
{% endfor %}
{% if gates %}<h2>The regression gate</h2><ul>
{% for line in gates %}<li>{{ line }}</li>
{% endfor %}</ul>{% endif %}
"""


def cell(value: float | None) -> str:
    """A number of the table with four significant digits at most; ``no data`` without one."""
    if value is None:
        return "no data"
    if abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.1f}"


def conditions(trial: Trial) -> str:
    """Load, machine and date in one sentence: without them the table compares with nothing."""
    record = trial.original.records[0]
    told, order = record.variables, "in turns" if trial.in_turns else "not in turns"
    return (
        f"{told['requests']} requests by {told['concurrency']} users, {told['output_tokens']} "
        f"tokens each; {trial.restarts} restarts of every arm, {order}; "
        f"{describe_machine(record.environment)}, {record.created_at[:10]}. The primary metric, "
        f"named before the runs, is {told['primary_metric']}."
    )


def quality_words(found: Quality) -> str:
    """The guard in one sentence."""
    right = found.right
    if right is None:
        return "quality: cannot tell, too few replies were compared"
    state = {True: "passed", False: "failed", None: "cannot tell"}[found.ok]
    out = (
        f"quality guard {state}: {right.candidate:.0%} of the answers are right, the "
        f"original's {right.reference:.0%}; difference {100 * right.low:+.0f} to "
        f"{100 * right.high:+.0f} points, {100 * QUALITY_MARGIN:.0f} fewer allowed"
    )
    if found.ok is None and right.units < LEAST_QUESTIONS:
        out += f" ({right.units} questions; {LEAST_QUESTIONS} could rule a loss out)"
    if found.other is not None:
        out += f"; {found.other:.0%} of the replies are the original's to the letter"
    return out if found.own is None else f"{out}, which repeats {found.own:.0%} itself"


def floor_words(c: Comparison) -> str:
    """The noise floor; a stored A/A comparison of a trial is that of its own original."""
    if c.noise_floor is None or "A/A comparisons stored" not in c.noise_source:
        return text.floor_words(c)
    return f"{c.noise_floor:.1%} (the original's odd restarts against its even ones)"


def finding_lines(found: Finding) -> list[str]:
    """Everything about one candidate, a sentence each."""
    out = [
        f"{name}: {c.verdict}"
        + (f" ({told}; noise floor {floor_words(c)})" if (told := text.difference_words(c)) else "")
        for name, c in found.comparisons.items()
    ]
    primary = found.primary
    if primary.attributable:
        out.append(f"cause: {primary.declared} is the only setting that differs{_follows(primary)}")
    elif words := text.cause_words(primary):
        out.append(words)
    out += [f"reason: {reason}" for reason in primary.reasons]
    out.append(quality_words(found.quality))
    a, b = found.service
    if a is not None and b is not None:
        out.append(f"service: {b:.1%} of the requests within the objectives, the original {a:.1%}")
    a, b = found.cost
    if a and b is not None:
        out.append(f"unit cost: {b:.3g} USD per million tokens, the original {a:.3g} "
                   f"({text.percent(b / a - 1)})")  # fmt: skip
    return out + [f"note: {caveat}" for caveat in primary.caveats]


def _follows(c: Comparison) -> str:
    names = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in c.follows))
    return f"; the engine derived {names} from it" if names else ""


def forest_rows(found: Sequence[Finding]) -> list[ForestRow]:
    """One row for each candidate and metric, for the forest plot."""
    return [
        ForestRow(f"{one.name}, {name}", c.effect, c.interval, c.noise_floor, c.verdict)
        for one in found
        for name, c in one.comparisons.items()
    ]


def gate_lines(gates: Mapping[str, GateRun]) -> list[str]:
    """What the gate said to each build, with its exit code."""
    return [f"{name}: exit code {run.exit_code}; {run.lines[-1]}" for name, run in gates.items()]


def trial_markdown(
    trial: Trial, found: Sequence[Finding], *, gates: Mapping[str, GateRun] | None = None
) -> str:
    """The page as Markdown, for a pull request."""
    data = table(trial)
    columns = list(next(iter(data.values())))
    lines = ["# Did the optimisation help?", "", conditions(trial), ""]
    lines += [f"- **{x.name}: {x.decision()[0]}** ({x.decision()[1]})" for x in found]
    lines += ["", f"| arm | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {n} | {' | '.join(map(cell, row.values()))} |" for n, row in data.items()]
    for one in found:
        lines += ["", f"## {one.name}", "", *(f"- {line}" for line in finding_lines(one))]
    if gates:
        lines += ["", "## The regression gate", "", *(f"- {x}" for x in gate_lines(gates))]
    return "\n".join(lines) + "\n"


def trial_page(
    trial: Trial, found: Sequence[Finding], *, gates: Mapping[str, GateRun] | None = None
) -> str:
    """The page as self-contained HTML."""
    data = table(trial)
    items = [
        {"name": x.name, "decision": x.decision()[0], "why": x.decision()[1],
         "mood": MOODS[x.decision()[0]], "lines": finding_lines(x)}
        for x in found
    ]  # fmt: skip
    compared = [c for x in found for c in x.comparisons.values()]
    names = [row.label for row in forest_rows(found)]
    title = "Did the optimisation help?"
    body = template(BODY).render(
        title=title, conditions=conditions(trial), items=items,
        forest=forest(compared, names=names),
        columns=list(next(iter(data.values()))), gates=gate_lines(gates or {}),
        rows=[(name, [cell(v) for v in row.values()]) for name, row in data.items()],
    )  # fmt: skip
    return render_page(body, title=title, style=STYLE)


def write_report(
    trial: Trial, found: Sequence[Finding], *, folder: Path,
    gates: Mapping[str, GateRun] | None = None,
) -> list[Path]:  # fmt: skip
    """``trial.html`` and ``trial.md`` in a folder. Raises RecordError where it cannot be written.

    Returns both paths.
    """
    page = trial_page(trial, found, gates=gates)
    plain = trial_markdown(trial, found, gates=gates)
    return [
        write_text_atomically(page, folder / "trial.html"),
        write_text_atomically(plain, folder / "trial.md"),
    ]
