"""What the records of a trial say: verdicts, quality guard, cost at equal service, adopt or not.

Everything here is computed from the rows of a trial and nothing else: another sample in a record is
another verdict. The noise floor comes from the same records, an A/A comparison between the
original's own restarts, so that no machine's memory has a say.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.experiment import noise
from turbo_lab.experiment.arms import LEAST_SAMPLES, Arm, observed, samples
from turbo_lab.experiment.bootstrap import Difference, median_difference
from turbo_lab.experiment.compare import Comparison, compare
from turbo_lab.experiment.metric_names import metric_name
from turbo_lab.experiment.quality import agreement
from turbo_lab.experiment.quality_checks import mentions_any
from turbo_lab.experiment.quality_paired import PairedDifference, paired_difference
from turbo_lab.experiment.trial import Trial

METRICS = ("throughput", "ttft", "tpot")  # the primary one first, where no other was named
QUALITY_MARGIN = 0.10  # so many right answers fewer, as a share of all, would still be accepted
# With nothing lost among n questions a loss of the margin is ruled out at 95 % only where
# (1 - margin)^n <= 0.05. The bootstrap cannot tell: n equal pairs give an interval without width.
LEAST_QUESTIONS = math.ceil(math.log(0.05) / math.log(1 - QUALITY_MARGIN))
SERVICE_MARGIN = 0.01


def metrics_of(trial: Trial) -> tuple[str, ...]:
    """What is compared: the metric that was named before the runs, then the others."""
    named = str(trial.original.records[0].variables.get("primary_metric") or METRICS[0])
    return (named, *(m for m in METRICS if metric_name(m) != metric_name(named)))


def aa_difference(original: Arm, *, metric: str) -> Difference | None:
    """The original against itself: its restarts of odd rounds against those of even rounds.

    Odd and even rounds ran in opposite orders. None with fewer than four restarts that have the
    metric, where a side would have one.
    """
    if len(original.records) < 4:
        return None
    wanted = metric_name(metric)
    odd, even = (samples(Arm(original.path, original.records[first::2]), wanted).values
                 for first in (0, 1))  # fmt: skip
    return median_difference(odd, even) if min(len(odd), len(even)) > 1 else None


def compare_to_original(trial: Trial, name: str, *, metric: str) -> Comparison:
    """One candidate against the original by one metric, with the floor of the trial's own A/A.

    With fewer than four restarts there is no A/A; then the floor is the scatter of the restarts.
    """
    chosen, original = trial.candidate(name), trial.original
    found = aa_difference(original, metric=metric)
    with tempfile.TemporaryDirectory(prefix="turbo-lab-aa-") as folder:
        if found is not None:
            wanted = metric_name(metric)
            unit = samples(original, wanted).unit
            key = noise.floor_key(original.records[0], metric=str(wanted), unit=unit)
            digests = [r.digest for r in original.records]
            noise.store_run(key, effect=found.effect, interval=found.interval, digests=digests,
                            facts={"metric": str(wanted)}, folder=Path(folder))  # fmt: skip
        return compare(
            original, trial.arms[name], declared=chosen.key, metric=metric,
            follows=chosen.follows, store=False, folder=Path(folder),
        )  # fmt: skip


@dataclass(frozen=True)
class Quality:
    """``own``: share of the original's replies that its other restarts repeat; ``other``: that the
    candidate repeats. ``right``: right answers, paired by question; None with too few questions.
    """

    own: float | None
    other: float | None
    right: PairedDifference | None

    @property
    def ok(self) -> bool | None:
        """True where a loss above ``QUALITY_MARGIN`` is ruled out, False where it is shown.

        None between the two ("no difference shown" is not "equal"), and with fewer questions than
        ``LEAST_QUESTIONS`` where no loss is shown.
        """
        if self.right is None:
            return None
        if self.right.low >= -QUALITY_MARGIN:
            return True if self.right.units >= LEAST_QUESTIONS else None
        return False if self.right.high < -QUALITY_MARGIN else None


def quality(trial: Trial, name: str, *, answers: Sequence[Sequence[str]]) -> Quality:
    """The guard: equal replies beside the original's own, and right answers by question.

    ``answers``: of each prompt, in the order of the prompts.
    """
    first, second = trial.texts[trial.candidates[0].name], trial.texts[name]
    own = [agreement(a, b).equal_share for a, b in combinations(first, 2)]
    other = [agreement(a, b).equal_share for a, b in product(first, second)]
    asked = answers[: min(map(len, (*first, *second)))]
    try:
        right = paired_difference(_right(first, asked), _right(second, asked))
    except UnmeasuredError:
        right = None
    return Quality(_mean(own), _mean(other), right)


def _right(texts: Sequence[Sequence[str | None]], answers: Sequence[Sequence[str]]) -> list[float]:
    """Of each question, the share of restarts that answered it rightly."""
    return [
        statistics.fmean(mentions_any(replies[i] or "", right) for replies in texts)
        for i, right in enumerate(answers)
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known else None


def median_of(arm: Arm, *, metric: str) -> float | None:
    """The middle one of the restarts' values; None where there is none."""
    values = samples(arm, metric_name(metric)).values
    return statistics.median(values) if values else None


def median_observed(arm: Arm, name: str, key: str) -> float | None:
    """The middle one of a number that each run noted; None where no run did."""
    found = [(observed(r, name) or {}).get(key) for r in arm.records]
    known = [v for v in found if isinstance(v, int | float)]
    return statistics.median(known) if known else None


def pool_tokens(arm: Arm) -> int | None:
    """Tokens in the KV pool, by the engine's own configuration; None where it does not tell."""
    config: Any = arm.records[0].engines[0].effective_config if arm.records[0].engines else None
    told = (config or {}).get("cache_config") or {}
    try:
        if "kv_cache_size_tokens" in told:
            return int(told["kv_cache_size_tokens"])
        return int(told["num_gpu_blocks"]) * int(told["block_size"])
    except (KeyError, TypeError, ValueError):
        return None


def ratio(trial: Trial, name: str, *, metric: str) -> float:
    """Median of a candidate's restarts over the original's. Raises UnmeasuredError."""
    a = median_of(trial.original, metric=metric)
    b = median_of(trial.arms[name], metric=metric)
    if not a or b is None:
        raise UnmeasuredError(f"{metric} of {name} or of the original has no number")
    return b / a


@dataclass(frozen=True)
class Finding:
    """All about one candidate. ``service`` and ``cost``: original and candidate.

    ``comparisons``: by metric, the primary one first (see ``metrics_of``).
    """

    name: str
    comparisons: dict[str, Comparison]
    quality: Quality
    service: tuple[float | None, float | None]
    cost: tuple[float | None, float | None]

    @property
    def primary(self) -> Comparison:
        """The comparison by the metric that was named before the run."""
        return next(iter(self.comparisons.values()))

    @property
    def equal_service(self) -> bool | None:
        """Whether as many requests were within the objectives; None without objectives."""
        a, b = self.service
        return None if a is None or b is None else b >= a - SERVICE_MARGIN

    @property
    def costs_more(self) -> bool:
        """Whether whole runs cost more per token; False without a price."""
        a, b = self.cost
        return a is not None and b is not None and b > a

    def decision(self) -> tuple[str, str]:
        """``adopt``, ``do not adopt`` or ``not yet``, and why, in one sentence."""
        verdict, good = self.primary.verdict, self.quality.ok
        if good is False:
            return "do not adopt", "fewer answers are right than the margin allows"
        if self.equal_service is False:
            return "do not adopt", "fewer requests are within the objectives"
        if min(side.starts for side in self.primary.samples) < LEAST_SAMPLES:
            return "not yet", f"fewer than {LEAST_SAMPLES} starts a side"
        if verdict == "worse":
            return "do not adopt", "the primary metric is worse"
        if verdict in ("cannot tell", "no data"):
            return "not yet", f"the primary metric says: {verdict}"
        if verdict == "no difference shown":
            return "do not adopt", "no gain is shown in the primary metric"
        if good is None:
            return "not yet", "a loss of right answers is not ruled out"
        return self._after_a_gain()

    def _after_a_gain(self) -> tuple[str, str]:
        """The primary metric is better and the answers are as good: what else must hold."""
        if not self.primary.changed:
            return "not yet", "no recorded setting differs, so the gain has no known cause"
        if not self.primary.attributable:
            return "not yet", "more than the declared setting differs"
        if self.equal_service is None:
            return "not yet", "no objectives were declared, so equal service is not shown"
        if self.costs_more:
            return "not yet", "a token of the whole run costs more all the same"
        return "adopt", "better, at equal service; too large a loss of right answers is ruled out"


def findings(trial: Trial, *, answers: Sequence[Sequence[str]]) -> list[Finding]:
    """One finding for each candidate behind the original."""
    return [_finding(trial, one.name, answers) for one in trial.candidates[1:]]


def _finding(trial: Trial, name: str, answers: Sequence[Sequence[str]]) -> Finding:
    pair = trial.original, trial.arms[name]
    share, cost = ([median_observed(arm, what, key) for arm in pair]
                   for what, key in (("slo", "share"), ("cost", "value")))  # fmt: skip
    return Finding(
        name=name,
        comparisons={m: compare_to_original(trial, name, metric=m) for m in metrics_of(trial)},
        quality=quality(trial, name, answers=answers),
        service=(share[0], share[1]),
        cost=(cost[0], cost[1]),
    )


def table(trial: Trial) -> dict[str, dict[str, float | None]]:
    """The source's table: a row per configuration, medians over its restarts."""
    return {
        name: {
            "TTFT P50 [ms]": _times(median_of(arm, metric="ttft"), 1e3),
            "TPOT P50 [ms]": _times(median_of(arm, metric="tpot"), 1e3),
            "throughput [tok/s]": median_of(arm, metric="throughput"),
            "KV pool [tokens]": pool_tokens(arm),
            "server memory [GB]": _times(
                median_observed(arm, "resources", "server_resident_bytes_max"), 1e-9
            ),
            "within objectives": median_observed(arm, "slo", "share"),
            "USD per million tokens": median_observed(arm, "cost", "value"),
            "restarts": len(arm.records),
        }
        for name, arm in trial.arms.items()
    }


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
