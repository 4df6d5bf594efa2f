"""What notebook 07 measures on: the bundled model in this process, behind one cache after another.

It stays on the CPU in every mode, because the table is about bits and not about speed. The part
with the server asks the engine of the mode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.engines import local_model
from turbo_lab.engines.kv_watch import beside_another
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.experiment.quality_prompts import QualityPrompt, load_prompts
from turbo_lab.experiment.quality_rows import row_to_dict
from turbo_lab.experiment.quality_served import served_replies
from turbo_lab.experiment.quality_table import QualityRow, reply_quality
from turbo_lab.metrics.summary import summarize
from turbo_lab.precision.engine_kv import serve_with
from turbo_lab.precision.kv_cache_kinds import CacheKind, cache_kinds

if TYPE_CHECKING:
    from turbo_lab.precision.kv_cache_study import Workload

SMOKE = ("fp32, our cache", "fp8 e4m3", "fp8 e5m2", "int8, K per token", "int4, K per token",
         "int4, K per channel", "4 sinks + window of 252", "window of 256")  # fmt: skip
SERVED_KINDS = ("facts", "arithmetic", "copying", "json", "code", "summarising")


def lesson_caches(effort: str) -> dict[str, CacheKind]:
    """The caches of an effort by name, in the table's order."""
    if effort not in ("smoke", "quick", "full"):
        raise UsageError(f"effort is {effort!r}.{did_you_mean(effort, ['smoke', 'quick', 'full'])}")
    known = cache_kinds()
    return {name: known[name] for name in SMOKE} if effort == "smoke" else known


def served_prompts(effort: str) -> tuple[QualityPrompt, ...]:
    """Short prompts of every kind but needles for the server: 6 at smoke, 12, all of them."""
    return load_prompts(SERVED_KINDS, per_kind={"smoke": 1, "quick": 2, "full": None}[effort])


class CacheWorkshop:
    """Model, texts and reference, loaded at first use, and in replay never.

    ``report`` gets a line for each step that takes seconds.
    """

    def __init__(self, effort: str, *, report: Callable[[str], None] = print) -> None:
        self.effort, self.report = effort, report
        self.kinds = lesson_caches(effort)

    @cached_property
    def source(self) -> str:
        """Folder of the bundled model."""
        return local_model.resolve_model(report=self.report)

    def config(self) -> dict[str, Any]:
        """Its config.json."""
        return json.loads((Path(self.source) / "config.json").read_text())

    @cached_property
    def work(self) -> Workload:
        """The reference's logits and replies."""
        from turbo_lab.experiment.quality_subject import load_subject
        from turbo_lab.precision.kv_cache_study import prepare

        self.report("  the reference")
        return prepare(load_subject(self.source), effort=self.effort)

    def texts_tokens(self) -> list[int]:
        """Lengths of the texts that perplexity is measured on."""
        return [len(ids) for ids in self.work.text.ids]

    def spreads(self) -> dict[str, Any]:
        """How unlike the channels are: ``layers`` (one row per layer and side, see
        :class:`.kv_cache_outliers.ChannelSpread`), and of the most extreme layer the largest
        magnitude of each channel of one head, ``channels`` by side.
        """
        from turbo_lab.precision.kv_cache_outliers import channel_spreads

        cache = self.work.subject.new_cache()
        for _ in self.work.subject.chunks(self.work.text.ids[0], cache, chunk_tokens=256):
            pass
        rows = channel_spreads(cache)
        worst = max((r for r in rows if r.side == "keys"), key=lambda r: r.ratio)
        layer = cache.layers[worst.layer]
        sizes = {side: getattr(layer, side)[0, worst.head, 1:].abs().amax(dim=0).tolist()
                 for side in ("keys", "values")}  # fmt: skip
        return {
            "layers": [{**asdict(r), "ratio": r.ratio} for r in rows],
            "worst": {"layer": worst.layer, "head": worst.head},
            "channels": sizes,
        }

    def rows(self, names: Sequence[str], *, ask: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Rows of the quality table; the caches in ``ask`` also answer the prompts."""
        from turbo_lab.precision.kv_cache_study import measure_caches

        chosen = {name: self.kinds[name] for name in names}
        return [
            row_to_dict(row)
            for row in measure_caches(self.work, chosen, ask=ask, report=self.report)
        ]

    def clear(self) -> None:
        """Let go of the model and its logits."""
        self.__dict__.pop("work", None)


def serve_beside(
    server: VllmServer, kv_dtype: str, *, prompts: Sequence[QualityPrompt]
) -> dict[str, Any]:
    """One server as it runs and one with another cache format: pools, pace, replies.

    The running one answers the prompts twice, so that the noise of one configuration is known.

    Returns:
        ``plain`` and ``other``: ``pool_tokens``, ``predicted_tokens``, ``tpot_s``, ``kv_dtype``;
        ``again_tpot_s``; ``repeat`` and ``changed``: :class:`.quality_table.ReplyQuality` of the
        second pass, and of the other format, against the first; ``reason`` where the engine
        refuses the format (then ``other`` and ``changed`` are None).
    """
    first, runs = served_replies(server.base_url, prompts, model=server.model_name)
    again, more = served_replies(server.base_url, prompts, model=server.model_name)
    other = serve_with(beside_another(server.args), kv_dtype, prompts=prompts)
    found: dict[str, Any] = {
        "plain": {"pool_tokens": server.kv_cache_tokens(), "kv_dtype": server.args.kv_cache_dtype,
                  "dtype": server.args.dtype, "tpot_s": summarize(runs).tpot_s.median},
        "again_tpot_s": summarize(more).tpot_s.median,
        "repeat": asdict(reply_quality(prompts, first, again)),
        "other": None, "changed": None, "reason": other.reason,
    }  # fmt: skip
    if other.reason is None:
        told = ("pool_tokens", "predicted_tokens", "tpot_s", "kv_dtype")
        found["other"] = {name: getattr(other, name) for name in told}
        found["changed"] = asdict(reply_quality(prompts, first, other.replies))
    return found


def step_power_ratio(levels: int, other_levels: int) -> float:
    """Error power of one uniform grid over another's on the same range: ``(L1 / L2)^2``.

    A range cut into L steps has rounding errors of variance ``(range / L)^2 / 12``, and the KL
    divergence of a softmax grows with the square of a small error in its logits.
    """
    if min(levels, other_levels) < 1:
        raise UsageError(f"{levels} and {other_levels} levels: both must be at least 1")
    return (levels / other_levels) ** 2


def unlike_prediction(rows: Sequence[QualityRow], predicted_bytes: Mapping[str, int]) -> list[str]:
    """Names of the rows whose counted bytes are not the predicted ones."""
    return [row.name for row in rows if row.stored_bytes != predicted_bytes[row.name]]
