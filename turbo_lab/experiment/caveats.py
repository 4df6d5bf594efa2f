"""What a reader of a comparison must know beside its verdict: weak evidence, unequal work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from turbo_lab.experiment.arms import Arm, Samples, measured
from turbo_lab.experiment.gates import BLOCKING
from turbo_lab.experiment.metric_names import MetricName, metric_name
from turbo_lab.metrics.percentiles import samples_to_certify

LENGTH_DRIFT, HIT_DRIFT = 0.02, 0.05


def shared_runs(a: Arm, b: Arm) -> bool:
    """True when one run stands on both sides."""
    return bool({r.digest for r in a.records} & {r.digest for r in b.records} - {None})


def caveats(
    a: Arm,
    b: Arm,
    name: MetricName,
    sides: tuple[Samples, Samples],
    changed: Sequence[str],
    declared: str | None,
    recorded: bool,
) -> tuple[str, ...]:
    """All of it in sentences; ``recorded``: some run records the declared setting."""
    out = _doubts(a, b, name)
    if declared is not None and not recorded:
        out.append(f"{declared!r} is recorded in neither run, so nothing shows that it changed")
    elif declared is not None and declared not in changed:
        meaning = "other settings differ" if changed else "this is an A/A comparison"
        out.append(f"{declared!r} is the same in both runs: {meaning}")
    if min(s.starts for s in sides) < 2:
        out.append("one server start a side: a difference between two starts is not in the scatter")
    named = {r.variables.get("primary_metric") for r in (*a.records, *b.records)}
    wanted = {str(metric_name(str(n))) for n in named if n}
    if wanted and str(name) not in wanted:
        out.append(f"the metric named before the run was {', '.join(sorted(wanted))}")
    elif not wanted:
        out.append("no metric was named before the run (--primary)")
    out += _drifts(a, b)
    out += [f"{label}: {text}" for label, arm in (("A", a), ("B", b)) for text in _warnings(arm)]
    commits = {r.environment.git_commit for r in (*a.records, *b.records)}
    if len(commits) > 1:
        out.append("the runs were made with different commits of this toolkit")
    return tuple(dict.fromkeys(out))


def _warnings(arm: Arm) -> list[str]:
    """One sentence per gate that warned, however many of the runs it was."""
    warned = [g for g in arm.gates() if g.passed is False and g.name not in BLOCKING]
    counts, last = Counter(g.name for g in warned), {g.name: g.detail for g in warned}
    runs = len(arm.records)
    return [
        f"{name}: {last[name]}" + (f" ({count} of {runs} runs)" if runs > 1 else "")
        for name, count in counts.items()
    ]


def _doubts(a: Arm, b: Arm, name: MetricName) -> list[str]:
    """A run against itself, and a percentile that too few requests certify."""
    out = []
    if shared_runs(a, b):
        out.append("A and B share a run: what is compared with itself shows no noise")
    if name.lower_is_better and name.percentile is not None and name.percentile > 50:
        needed = samples_to_certify(name.percentile)
        for label, arm in (("A", a), ("B", b)):
            found = [m for r in arm.records if (m := measured(r, name)) is not None]
            least = min((sum(v is not None for v in m.samples) for m in found), default=0)
            if 0 < least < needed:
                out.append(f"{label}: {least} requests do not certify p{name.percentile:g}, "
                           f"{needed} would")  # fmt: skip
    return out


def _drifts(a: Arm, b: Arm) -> list[str]:
    """Work that was not equal although it was asked to be."""
    out = []
    for key, what in (("output_tokens_mean", "output"), ("input_tokens_mean", "input")):
        left, right = a.mean_of("lengths", key), b.mean_of("lengths", key)
        if left and right and abs(right / left - 1) > LENGTH_DRIFT:
            out.append(f"{what}-length drift: {left:.1f} against {right:.1f} tokens")
    hits = a.mean_of("resources", "prefix_hit_rate"), b.mean_of("resources", "prefix_hit_rate")
    if hits[0] is not None and hits[1] is not None and abs(hits[1] - hits[0]) > HIT_DRIFT:
        out.append(f"prefix-hit drift: {hits[0]:.1%} against {hits[1]:.1%}")
    return out
