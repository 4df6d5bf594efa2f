"""The quality table of notebook 06: one model, many ways to store its weights, the same text."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.experiment.quality_logits import TokenScores
from turbo_lab.experiment.quality_prompts import document
from turbo_lab.experiment.quality_subject import (
    ReferenceText,
    Subject,
    reference_text,
    score_text,
)
from turbo_lab.experiment.quality_table import QualityRow, text_quality
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.calibration import (
    LayerInputs,
    calibration_folder,
    collect_inputs,
    token_windows,
)
from turbo_lab.precision.weights.recipe import Recipe, quantized_copy

WINDOW_TOKENS = 512  # weights do not care how the text is fed, so few large passes are best
PASSAGES = {"smoke": (2, 1), "quick": (6, 2), "full": (16, 8)}  # English, Chinese
CALIBRATION_TOKENS = {"smoke": 256, "quick": 1024, "full": 1 << 20}  # of each language, at most


def standard_recipes() -> dict[str, Recipe]:
    """The recipes of the table by name: from harmless to broken, and the methods side by side."""
    group = Scheme("int4", "group", group_size=64, scale_dtype="bf16")
    channel = Scheme("int4", "channel", scale_dtype="bf16")
    uneven = Scheme("int4", "group", group_size=64, zero="code", scale_dtype="bf16")
    nf4 = Scheme("nf4", "group", group_size=64, scale_dtype="bf16")
    rows = (
        Recipe("int8 per channel", Scheme("int8", "channel")),
        Recipe("fp8 e4m3 per channel", Scheme("fp8_e4m3", "channel")),
        Recipe("int4 per tensor", Scheme("int4", "tensor")),
        Recipe("int4 per channel", channel),
        Recipe("int4 per channel, AWQ", channel, smooth=True),
        Recipe("int4 per channel, GPTQ", channel, method="gptq"),
        Recipe("int4 groups of 64", group),
        Recipe("int4 groups of 64, AWQ", group, smooth=True),
        Recipe("int4 groups of 64, GPTQ", group, method="gptq"),
        Recipe("int4 groups of 64, asymmetric", uneven),
        Recipe("int4 groups of 64, asymmetric, GPTQ", uneven, method="gptq"),
        Recipe("nf4 groups of 64", nf4),
    )
    return {recipe.name: recipe for recipe in rows}


@dataclass(frozen=True, eq=False)
class WeightWork:
    """What every recipe is measured on. ``scores``: the reference's own, in its own dtype."""

    subject: Subject
    text: ReferenceText
    scores: TokenScores
    reference_bytes: int

    def score(self, model: Any) -> float:
        """Mean KL to the reference in nats per token: the loss for :func:`.sensitivity`."""
        values = score_text(self._as_subject("candidate", model), self.text).kl
        return sum(values) / len(values)

    def row(self, name: str, model: Any, *, stored_bytes: int) -> QualityRow:
        """A row of the table for a model with this tokenizer."""
        scores = score_text(self._as_subject(name, model), self.text)
        return QualityRow(
            name=name,
            text=text_quality(self.scores, scores),
            stored_bytes=stored_bytes,
            reference_bytes=self.reference_bytes,
        )

    def _as_subject(self, name: str, model: Any) -> Subject:
        return Subject(name, model, self.subject.tokenizer)


def prepare_weights(subject: Subject, *, effort: str = "quick") -> WeightWork:
    """Score the reference on our own passages. Raises UsageError for an unknown effort.

    ``reference_bytes``: all its parameters in its own dtype, tied ones once.
    """
    english, chinese = _of_effort(PASSAGES, effort)
    texts = (document("en", passages=english), document("zh", passages=chinese))
    text = reference_text(subject, texts, chunk_tokens=WINDOW_TOKENS)
    total = sum(p.numel() * p.element_size() for p in subject.model.parameters())
    return WeightWork(subject, text, score_text(subject, text), total)


def calibrate(subject: Subject, *, effort: str = "quick") -> dict[str, LayerInputs]:
    """Inputs of all linear layers on the repository's calibration texts, apart from the passages.

    The first tokens of each language, as many as the effort allows.
    """
    limit = _of_effort(CALIBRATION_TOKENS, effort)
    windows: list[Any] = []
    for language in ("en", "zh"):
        text = (calibration_folder() / f"calibration_{language}.txt").read_text(encoding="utf-8")
        ids = subject.encode(text)[:limit]
        windows += token_windows(ids, window_tokens=WINDOW_TOKENS)
    return collect_inputs(subject.model, windows)


def measure_dtype(work: WeightWork, dtype: str) -> QualityRow:
    """The row of the same weights stored and computed in ``bfloat16`` or ``float16``.

    This is the precision dividend's side of the table: no method, only narrower arithmetic.
    """
    model = copy.deepcopy(work.subject.model).to(_torch_dtype(dtype))
    stored = sum(p.numel() * p.element_size() for p in model.parameters())
    return work.row(dtype, model, stored_bytes=stored)


def measure_recipes(
    work: WeightWork,
    recipes: Mapping[str, Recipe] | None = None,
    *,
    inputs: Mapping[str, LayerInputs] | None = None,
    dtype: str | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Iterator[QualityRow]:
    """One row for each recipe, as they are ready.

    ``inputs``: for recipes that need calibration. ``dtype``: of the arithmetic (default: the
    reference's); ``bfloat16`` is several times faster where the processor has it and adds the
    error that :func:`measure_dtype` shows alone.
    """
    for name, recipe in (recipes if recipes is not None else standard_recipes()).items():
        report(f"  {name}")
        made = quantized_copy(work.subject.model, recipe, inputs=inputs)
        model = made.model if dtype is None else made.model.to(_torch_dtype(dtype))
        yield work.row(name, model, stored_bytes=made.bytes)


def _torch_dtype(name: str) -> Any:
    import torch

    allowed = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    if name not in allowed:
        raise UsageError(f"dtype is {name!r}.{did_you_mean(name, list(allowed))}")
    return allowed[name]


def _of_effort(table: Mapping[str, Any], effort: str) -> Any:
    if effort not in table:
        raise UsageError(f"effort is {effort!r}.{did_you_mean(effort, list(table))}")
    return table[effort]
