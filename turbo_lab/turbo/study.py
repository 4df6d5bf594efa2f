"""Quality of the whole model when every attention layer is merged by tables, row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.engines import local_model
from turbo_lab.models.memory import kv_bytes_per_token
from turbo_lab.models.spec import from_hf_config
from turbo_lab.turbo.arms import BASE_SHARDS, Arm, study_arms
from turbo_lab.turbo.capture import Capture, capture_step
from turbo_lab.turbo.error_budget import error_budget, measured_rms
from turbo_lab.turbo.merge import merge, merge_tree, sharded_parts
from turbo_lab.turbo.tables import Calibration, TableMachine

if TYPE_CHECKING:
    from turbo_lab.experiment.quality_logits import TokenScores
    from turbo_lab.experiment.quality_subject import ReferenceText, Subject

TEXT_TOKENS = {"smoke": 192, "quick": 320, "full": 1024}
CALIBRATION_TOKENS = {"smoke": 128, "quick": 320, "full": 1024}
EXACT_SHARDS = (2, 3, 4, 8, 16)
CALIBRATION_FILE = "calibration_en.txt"  # other text than the one that is scored


class TurboWorkshop:
    """Model, texts, calibration; loaded at first use, and in replay never."""

    def __init__(self, effort: str, *, report: Callable[[str], None] = print) -> None:
        if effort not in TEXT_TOKENS:
            raise UsageError(f"effort is {effort!r}.{did_you_mean(effort, list(TEXT_TOKENS))}")
        self.effort, self.report = effort, report
        self.arms = study_arms(effort)

    @cached_property
    def subject(self) -> Subject:
        """The bundled model in this process, float32."""
        from turbo_lab.experiment.quality_subject import load_subject

        return load_subject(local_model.resolve_model(report=self.report))

    @cached_property
    def text(self) -> ReferenceText:
        """The scored text with the untouched model's logits, in one pass."""
        from turbo_lab.experiment.quality_prompts import document
        from turbo_lab.experiment.quality_subject import reference_text

        tokens = TEXT_TOKENS[self.effort]
        self.report("  the reference")
        return reference_text(
            self.subject, [document("en")], chunk_tokens=tokens, max_tokens=tokens
        )

    @cached_property
    def scores(self) -> TokenScores:
        """The reference's own scores."""
        from turbo_lab.experiment.quality_subject import own_scores

        return own_scores(self.text)

    @cached_property
    def calibration(self) -> dict[int, Calibration]:
        """Static scales and offsets per layer and head, from text that is not scored."""
        from turbo_lab.experiment.quality_prompts import prompts_folder
        from turbo_lab.turbo.attention import Calibrating, ShardedCache

        self.report("  calibration")
        found = Calibrating()
        text = (prompts_folder() / CALIBRATION_FILE).read_text(encoding="utf-8")
        ids = self.subject.encode(text)[: CALIBRATION_TOKENS[self.effort]]
        cache = ShardedCache(self.subject.model.config, shards=BASE_SHARDS, merging=found)
        self.subject.forward(ids, cache, last_only=True)
        return found.done()

    def row(self, arm: Arm) -> dict[str, Any]:
        """Quality of one arm against the untouched model, as plain numbers."""
        from turbo_lab.experiment.quality_subject import score_text
        from turbo_lab.experiment.quality_table import text_quality
        from turbo_lab.turbo.attention import ShardedCache

        merging = self._merging(arm)
        config = self.subject.model.config
        subject = self.subject.with_cache(
            arm.name, lambda: ShardedCache(config, shards=arm.shards, merging=merging)
        )
        quality = text_quality(self.scores, score_text(subject, self.text))
        ratio, low, high = quality.perplexity_ratio
        return {
            "name": arm.name, "group": arm.group, "kind": arm.kind, "shards": arm.shards,
            "bits": getattr(arm.machine, arm.group, None), "tokens": quality.tokens,
            "kl": quality.kl.mean, "kl_low": quality.kl.low, "kl_high": quality.kl.high,
            "perplexity": quality.perplexity, "reference": np.exp(quality.nll.reference).item(),
            "ratio": ratio, "ratio_low": low, "ratio_high": high,
            "other_top": quality.other_top.mean,
            "saturated": getattr(merging, "saturated", 0) / max(1, getattr(merging, "values", 1)),
        }  # fmt: skip

    def rows(self, arms: Sequence[Arm] | None = None) -> list[dict[str, Any]]:
        """All rows, in order."""
        found = []
        for arm in arms if arms is not None else self.arms:
            self.report(f"  {arm.name}")
            found.append(self.row(arm))
        return found

    def _merging(self, arm: Arm) -> Any:
        from turbo_lab.turbo.attention import Rounded, Tabled, merge_exactly

        if arm.kind == "exact":
            return merge_exactly
        if arm.kind == "int8":
            return Rounded(self.calibration)
        return Tabled(arm.machine, self.calibration, tree=arm.tree)

    @cached_property
    def captures(self) -> list[Capture]:
        """Query, cache and attention output of every layer at the last token of the scored text."""
        return capture_step(self.subject, self.text.ids[0])

    def exactness(self) -> dict[str, float]:
        """Largest relative error of the merge on the real cache, over shards, orders and trees.

        ``own``: against float64 attention over the same cache; ``model``: against what the model's
        own attention gave (float32 arithmetic).
        """
        rng = np.random.default_rng(0)
        own = model = 0.0
        for one in self.captures:
            whole, _ = merge(*sharded_parts(one.query, one.keys, one.values, shards=1))
            size = np.abs(whole).max()
            for shards in EXACT_SHARDS:
                outputs, weights = sharded_parts(one.query, one.keys, one.values, shards=shards)
                order = rng.permutation(shards)
                for got, _ in (
                    merge(outputs[order], weights[order]),
                    merge_tree(outputs[order], weights[order], fan_in=int(rng.integers(2, 5))),
                ):
                    own = max(own, float(np.abs(got - whole).max() / size))
                    model = max(model, float(np.abs(got - one.output).max() / size))
        return {"own": own, "model": model}

    def _shares(self, machine: TableMachine) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Values in code steps, weights and gamma offset of each layer's parts, on the real cache.

        One layer at a time, so that no error of an earlier layer is in it.
        """
        for one in self.captures:
            outputs, weights = sharded_parts(one.query, one.keys, one.values, shards=BASE_SHARDS)
            fixed = self.calibration[one.layer]
            yield outputs / fixed.scale(machine)[:, None], weights, fixed.offset(machine)

    def foretold_error(self, machine: TableMachine) -> dict[str, float]:
        """RMS error in value codes over all layers that the four roundings must give, by source."""
        budgets = [error_budget(v, w, machine=machine) for v, w, _ in self._shares(machine)]
        names = ("values", "products", "weights", "gammas", "total")
        return {n: float(np.mean([getattr(b, n) ** 2 for b in budgets]) ** 0.5) for n in names}

    def measured_error(self, machine: TableMachine) -> float:
        """RMS error in value codes of the machine against the exact merge, over all layers."""
        found = [
            measured_rms(v, w, machine=machine, offset=offset) ** 2
            for v, w, offset in self._shares(machine)
        ]
        return float(np.mean(found) ** 0.5)

    def shape(self) -> dict[str, int]:
        """Layers, query heads, head dimension and cache bytes per token (bf16) of the model."""
        folder = Path(local_model.resolve_model(report=self.report))
        spec = from_hf_config(json.loads((folder / "config.json").read_text()))
        first = spec.attention_layers[0]
        return {
            "layers": len(spec.attention_layers), "heads": first.query_heads,
            "dim": first.head_dim_v, "kv_bytes_per_token": kv_bytes_per_token(spec),
        }  # fmt: skip

    def gamma_span(self) -> float:
        """Base-2 range that gamma needs on the calibration text, over all layers and heads."""
        return max(one.span() for one in self.calibration.values())

    def clear(self) -> None:
        """Let go of the model and its logits."""
        for name in ("subject", "text", "scores", "calibration", "captures"):
            self.__dict__.pop(name, None)
