"""The prefill law finds its own coefficients and predicts prompts whose beginning is cached."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.prefill import PrefillLaw, fit_prefill
from turbo_lab.models.catalog import load_model

SPEC = load_model("smollm2-135m").spec()
TRUE = PrefillLaw(SPEC, 0.02, 5e-12, 2e-11)
LENGTHS = (64, 256, 512, 1024, 1536)


def test_fit_recovers_the_law_and_extends_to_cached_prompts() -> None:
    found = fit_prefill(SPEC, {n: [TRUE.seconds(tokens=n)] * 3 for n in LENGTHS})
    for tokens, past in ((100, 0), (128, 1024), (600, 512)):
        told, true = (law.seconds(tokens=tokens, past=past) for law in (found, TRUE))
        assert told == pytest.approx(true, rel=1e-6)


def test_a_cached_beginning_saves_but_its_attention_still_costs() -> None:
    cold, warm = TRUE.seconds(tokens=1536), TRUE.seconds(tokens=512, past=1024)
    alone = TRUE.seconds(tokens=512)
    assert alone < warm < cold


def test_one_slow_pass_does_not_move_the_fit() -> None:
    samples = {n: [TRUE.seconds(tokens=n)] * 2 + [9.0] for n in LENGTHS}
    assert fit_prefill(SPEC, samples).request_s == pytest.approx(0.02, rel=1e-6)


def test_too_few_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match="2 prompt lengths"):
        fit_prefill(SPEC, {64: [0.1], 128: [0.2], 256: []})
