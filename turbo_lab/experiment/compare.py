"""Compare two configurations: one declared variable, one metric, one honest verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from turbo_lab.core.errors import TurboLabError
from turbo_lab.experiment import noise, settings
from turbo_lab.experiment.arms import (
    LEAST_SAMPLES,
    Arm,
    Samples,
    definition,
    observed,
    samples,
)
from turbo_lab.experiment.bootstrap import Difference, median_difference
from turbo_lab.experiment.caveats import caveats, shared_runs
from turbo_lab.experiment.gates import BLOCKING
from turbo_lab.experiment.metric_names import MetricName, metric_name
from turbo_lab.experiment.quality import agreement

Verdict = Literal["better", "worse", "no difference shown", "cannot tell", "no data"]
ALIASES = {"rate": "rate_req_s", "batch_size": "max_num_seqs"}


@dataclass(frozen=True)
class Comparison:
    """B against A.

    ``effect`` and ``interval`` are relative: 0.2 means B's value is 20 % larger. ``changed`` names
    every setting that differs, the declared one included, without ``follows`` (its declared
    consequences). Only with exactly the declared variable changed is the effect attributable.
    """

    verdict: Verdict
    metric: str
    unit: str
    lower_is_better: bool
    declared: str | None
    attributable: bool
    changed: tuple[str, ...]
    follows: tuple[str, ...]
    changes: dict[str, tuple[Any, Any]]
    effect: float | None
    interval: tuple[float, float] | None
    noise_floor: float | None
    noise_source: str
    values: tuple[float | None, float | None]
    samples: tuple[Samples, Samples]
    reasons: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    quality: dict[str, Any] | None = None
    arms: tuple[str, str] = ("A", "B")
    stored: str | None = field(default=None, compare=False)

    @property
    def passes_gate(self) -> bool:
        """Whether a regression gate lets B through: what cannot be told has not passed."""
        return self.verdict in ("better", "no difference shown")

    def changes_of(self, name: str) -> tuple[Any, Any]:
        """Both values of a changed setting, wherever it shows; its own name first."""
        if name in self.changes:
            return self.changes[name]
        return next(v for k, v in self.changes.items() if _matches(k, name))


def compare(
    a: Arm,
    b: Arm,
    *,
    declared: str | None,
    metric: str,
    follows: Sequence[str] = (),
    store: bool = True,
    folder: Path | None = None,
) -> Comparison:
    """Compare two arms by one metric.

    Args:
        a, b: reference and candidate.
        declared: the one setting that was meant to differ; None for an A/A comparison.
        metric: named before the run (``ttft``, ``tpot.p95``, ``throughput`` ...).
        follows: settings that are consequences of the declared one.
        store: keep an A/A comparison as this machine's noise floor.
        folder: where noise floors are kept (default: the cache folder).

    Raises:
        TurboLabError: an unknown metric, unlike definitions, or a side of mixed configurations.
    """
    name = metric_name(metric)
    _refuse_unlike(a, b, name)
    declared = ALIASES.get(declared or "", declared)
    changes, known = changed_settings(a, b, objectives=name.base == "goodput_req_s")
    changed, followed = _fold(changes, declared, follows)
    changes = _without_parts(changes, declared)
    left, right = samples(a, name), samples(b, name)
    found, one_start = _difference(left, right), min(left.starts, right.starts) < 2
    key = noise.floor_key(a.records[0], metric=str(name), unit=left.unit)
    floor = _floor(key, left, right, one_start=one_start, folder=folder)
    reasons = _reasons(a, b, left, right)
    verdict = _verdict(found, floor, reasons, (left, right), name)
    recorded = declared is not None and _matches_any(known, declared)
    attributable = bool(changed) and changed == (declared,) and verdict in ("better", "worse")
    result = Comparison(
        verdict=verdict, metric=str(name), unit=name.unit, lower_is_better=name.lower_is_better,
        declared=declared, attributable=attributable, changed=changed, follows=followed,
        changes=changes, effect=found and found.effect, interval=found and found.interval,
        noise_floor=floor and floor.value, noise_source=floor.source if floor else "no data",
        values=tuple(statistics.median(s.values) if s.values else None for s in (left, right)),
        samples=(left, right), reasons=reasons,
        caveats=caveats(a, b, name, (left, right), changed, declared, recorded),
        quality=_quality(a, b), arms=(a.path, b.path),
    )  # fmt: skip
    is_aa = not changed and (declared is None or recorded) and not shared_runs(a, b)
    if store and is_aa and found and not reasons:
        _store(key, result, a, b, folder)
    return result


def changed_settings(
    a: Arm, b: Arm, *, objectives: bool = True
) -> tuple[dict[str, tuple[Any, Any]], set[str]]:
    """What differs between two arms, and all setting names of both.

    Without ``objectives`` the limits of goodput are left out: they decide no other metric.
    """
    left, right = a.settings(), b.settings()
    changes = settings.differences(left, right)
    if not objectives:
        changes = {k: v for k, v in changes.items() if not k.startswith("slo.")}
    return changes, left.keys() | right.keys()


def _matches(name: str, wanted: str) -> bool:
    """The setting itself, wherever it shows, or a part of it (``speculative_config.method``)."""
    same = name == wanted or settings.leaf(name) == settings.leaf(wanted)
    return same or _is_part(name, wanted)


def _is_part(name: str, wanted: str) -> bool:
    return settings.leaf(wanted) in map(settings.leaf, name.split(".")[:-1])


def _without_parts(
    changes: dict[str, tuple[Any, Any]], declared: str | None
) -> dict[str, tuple[Any, Any]]:
    """The changes without the parts of the declared setting, where it is there as a whole."""
    if declared is None or not any(settings.leaf(k) == settings.leaf(declared) for k in changes):
        return changes
    return {k: v for k, v in changes.items() if not _is_part(k, declared)}


def _matches_any(names: set[str], wanted: str) -> bool:
    return any(_matches(name, wanted) for name in names)


def _fold(
    changes: dict[str, tuple[Any, Any]], declared: str | None, follows: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that differ. All places that show the declared setting count as one; so do a flag and
    the configuration that the server made of it.
    """
    flags = {settings.leaf(name) for name in changes if name.startswith("flag.")}
    changed: list[str] = []
    followed: list[str] = []
    for name in changes:
        if declared is not None and _matches(name, declared):
            shown, home = declared, changed
        elif any(_matches(name, other) for other in follows):
            shown, home = name, followed
        else:
            by_flag = name.startswith("config.") and settings.leaf(name) in flags
            shown = settings.leaf(name) if by_flag else name.removeprefix("flag.")
            home = changed
        if shown not in home:
            home.append(shown)
    return tuple(changed), tuple(followed)


def _refuse_unlike(a: Arm, b: Arm, name: MetricName) -> None:
    ours, theirs = definition(a, name), definition(b, name)
    if ours is not None and theirs is not None and ours != theirs:
        raise TurboLabError(
            f"{name.base} means different things in the two: {ours!r} in {a.path}, {theirs!r} in "
            f"{b.path}. Unlike metrics are not put side by side; compare runs of one client"
        )


def _difference(left: Samples, right: Samples) -> Difference | None:
    if not left.values or not right.values:
        return None
    return median_difference(left.values, right.values)


def _floor(
    key: str, left: Samples, right: Samples, *, one_start: bool, folder: Path | None
) -> noise.NoiseFloor | None:
    if not left.values or not right.values:
        return None
    return noise.noise_floor(
        key, arms=(left.values, right.values), one_start=one_start, folder=folder
    )


def _reasons(a: Arm, b: Arm, left: Samples, right: Samples) -> tuple[str, ...]:
    """Why no verdict is possible, apart from missing data."""
    out = []
    for label, arm, found in (("A", a, left), ("B", b, right)):
        for gate in arm.gates():
            if gate.passed is False and gate.name in BLOCKING:
                out.append(f"{label}: gate '{gate.name}' failed: {gate.detail}")
        if 0 < len(found.values) < LEAST_SAMPLES:
            out.append(
                f"{label} has {len(found.values)} samples ({found.unit}); a verdict needs at "
                f"least {LEAST_SAMPLES} on each side"
            )
        if found.why_not:
            out.append(f"{label}: {found.why_not}")
    if left.values and not statistics.median(left.values) > 0:
        out.append("the median of A is 0, so a relative difference is not defined")
    if left.unit != right.unit and left.values and right.values:
        out.append(f"A has {left.unit}, B has {right.unit}: they scatter differently")
    return tuple(dict.fromkeys(out))


def _verdict(
    found: Difference | None,
    floor: noise.NoiseFloor | None,
    reasons: Sequence[str],
    sides: tuple[Samples, Samples],
    name: MetricName,
) -> Verdict:
    if not sides[0].values or not sides[1].values:
        return "no data"
    if found is None or floor is None or reasons:
        return "cannot tell"
    if found.low <= floor.value and found.high >= -floor.value:
        return "no difference shown"
    grew = found.effect > 0
    return "worse" if grew == name.lower_is_better else "better"


def _quality(a: Arm, b: Arm) -> dict[str, Any] | None:
    """Equality of the replies where both sides were asked the very same prompts."""
    left, right = a.records[0], b.records[0]
    prompts = [(observed(r, "prompts") or {}).get("digest") for r in (left, right)]
    texts = [observed(r, "replies") for r in (left, right)]
    if prompts[0] is None or prompts[0] != prompts[1] or not texts[0] or not texts[1]:
        return None
    found = agreement(texts[0], texts[1])
    if not found.compared:  # No prompt was answered on both sides.
        return None
    return {"equal_share": found.equal_share, "compared": found.compared}


def _store(key: str, result: Comparison, a: Arm, b: Arm, folder: Path | None) -> None:
    assert result.effect is not None and result.interval is not None
    path = noise.store_run(
        key,
        effect=result.effect,
        interval=result.interval,
        digests=[r.digest for r in (*a.records, *b.records)],
        facts={"study": a.records[0].study, "metric": result.metric, "arms": list(result.arms)},
        folder=folder,
    )
    object.__setattr__(result, "stored", str(path) if path else None)
