"""A comparison in words, for a terminal and for a page, and as plain data for ``--json``."""

from __future__ import annotations

from typing import Any

from turbo_lab.experiment.compare import Comparison
from turbo_lab.report.bench_text import plain, show_value


def comparison_to_json(c: Comparison) -> dict[str, Any]:
    """What ``turbo-lab compare --json`` prints."""
    return {
        "verdict": c.verdict,
        "attributable": c.attributable,
        "changed": list(c.changed),
        "noise_floor": c.noise_floor,
        "effect": c.effect,
        "interval": list(c.interval) if c.interval else None,
        "declared": c.declared,
        "metric": c.metric,
        "unit": c.unit,
        "lower_is_better": c.lower_is_better,
        "a": {"path": c.arms[0], "median": c.values[0], "samples": list(c.samples[0].values),
              "sample_unit": c.samples[0].unit, "starts": c.samples[0].starts},
        "b": {"path": c.arms[1], "median": c.values[1], "samples": list(c.samples[1].values),
              "sample_unit": c.samples[1].unit, "starts": c.samples[1].starts},
        "changes": {k: list(v) for k, v in c.changes.items()},
        "follows": list(c.follows),
        "noise_source": c.noise_source,
        "reasons": list(c.reasons),
        "caveats": list(c.caveats),
        "quality": c.quality,
        "stored_as_noise_floor": c.stored,
    }  # fmt: skip


def comparison_lines(c: Comparison) -> list[str]:
    """A comparison in sentences. The word "because" appears only where it is earned."""
    a, b = (show_value(v, c.unit) for v in c.values)
    lines = [f"{c.metric}: A {a}, B {b} (medians over {_samples_text(c)})"]
    if told := difference_words(c):
        lines.append(f"difference of the medians {told}; noise floor {floor_words(c)}")
    lines.append(f"verdict: {c.verdict}")
    if cause := cause_words(c):
        lines.append(cause)
    lines += [f"  changed: {k}: {x!r} -> {y!r}" for k, (x, y) in c.changes.items()]
    lines += [f"  reason: {text}" for text in c.reasons]
    lines += [f"  note: {text}" for text in notes(c)]
    return lines


def difference_words(c: Comparison) -> str:
    """Effect and interval; empty without data."""
    if c.effect is None or c.interval is None:
        return ""
    low, high = (percent(end) for end in c.interval)
    return f"{percent(c.effect)}, 95 % interval {low} to {high}"


def floor_words(c: Comparison) -> str:
    """The noise floor and where it comes from."""
    return "no data" if c.noise_floor is None else f"{c.noise_floor:.1%} ({c.noise_source})"


def cause_words(c: Comparison) -> str:
    """What the difference may be put down to; empty where there is none."""
    if c.attributable:
        before, after = c.changes_of(c.declared or "")
        return f"B is {c.verdict} because {c.declared} changed from {before!r} to {after!r}."
    if c.verdict in ("better", "worse"):
        return f"The cause is not established: {_withheld(c)}."
    return ""


def notes(c: Comparison) -> list[str]:
    """Caveats, equality of the replies, and whether it was kept as a noise floor."""
    out = list(c.caveats)
    if c.quality:
        out.append(f"equal replies to equal prompts: {c.quality['equal_share']:.0%}")
    if c.stored:
        out.append("stored as a noise floor of this machine")
    return out


def _samples_text(c: Comparison) -> str:
    """``5 restarts each``, or both sides apart where they differ."""
    a, b = c.samples
    if (len(a.values), a.unit) == (len(b.values), b.unit):
        return f"{len(a.values)} {a.unit} each"
    return f"{len(a.values)} {a.unit} and {len(b.values)} {b.unit}"


def _withheld(c: Comparison) -> str:
    others = [name for name in c.changed if name != c.declared]
    names, one = ", ".join(others), len(others) == 1
    if not c.changed:
        return "no recorded setting differs"
    if c.declared is None:
        return (
            f"no variable was declared (--declared), and {names} {'differs' if one else 'differ'}"
        )
    if c.declared not in c.changed:
        return f"{c.declared} does not differ, but {names} {'does' if one else 'do'}"
    return f"besides {c.declared} also {names} {'differs' if one else 'differ'}"


def plain_metric(metric: str) -> str:
    """``ttft_s.p50`` as ``ttft p50``."""
    base, _, statistic = metric.partition(".")
    return f"{plain(base)} {statistic}".strip()


def percent(share: float) -> str:
    """A signed share in percent with one decimal; what rounds to zero has no sign."""
    return "0.0%" if abs(share) < 0.0005 else f"{share:+.1%}"
