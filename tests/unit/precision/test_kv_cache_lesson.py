"""Notebook 07's own parts: bytes of all layers, the law of steps, labels that keep apart."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.quality_table import QualityRow
from turbo_lab.models.catalog import load_model
from turbo_lab.models.spec import from_hf_config
from turbo_lab.precision import kv_cache_lesson as lesson
from turbo_lab.precision.eviction_rule import evicted_layer_bytes
from turbo_lab.precision.kv_cache_kinds import cache_bytes, cache_kinds
from turbo_lab.precision.kv_cache_scheme import layer_cache_bytes
from turbo_lab.report.plots.kv_cache import LABEL_GAP, NEAR, plot_cache_quality
from turbo_lab.report.plots.quality import spread_labels

SPEC = from_hf_config(json.loads(json.dumps(load_model("smollm2-135m").config)))


@pytest.mark.parametrize("name", cache_kinds())
def test_bytes_are_those_of_one_layer_times_layers_summed_over_texts(name: str) -> None:
    kind = cache_kinds()[name]
    law = evicted_layer_bytes if hasattr(kind, "window_tokens") else layer_cache_bytes
    one = [law(kind, tokens=n, kv_heads=3, head_dim=64) for n in (7, 300)]
    assert cache_bytes(kind, spec=SPEC, texts_tokens=[7, 300]) == 30 * sum(one)


def test_plain_float32_is_the_cache_of_notebook_01() -> None:
    kind = cache_kinds()["fp32, our cache"]
    assert cache_bytes(kind, spec=SPEC, texts_tokens=[100]) == 100 * 46_080


def test_the_notebooks_names_exist_at_every_effort() -> None:
    needed = {"int4, K per token", "int8, K per token", "int4, K per channel", "fp8 e5m2",
              "fp8 e4m3", "window of 256", "4 sinks + window of 252"}  # fmt: skip
    for effort in ("smoke", "quick", "full"):
        assert needed <= set(lesson.lesson_caches(effort))
        assert len(lesson.served_prompts(effort)) >= 5, "an interval needs five prompts"
    with pytest.raises(UsageError, match="quikc"):
        lesson.lesson_caches("quikc")


def test_error_power_goes_with_the_square_of_the_step() -> None:
    assert lesson.step_power_ratio(255, 15) == 289
    with pytest.raises(UsageError, match="at least 1"):
        lesson.step_power_ratio(0, 15)


def test_a_row_with_other_bytes_is_named() -> None:
    rows = [QualityRow("a", stored_bytes=10), QualityRow("b", stored_bytes=11)]
    assert lesson.unlike_prediction(rows, {"a": 10, "b": 10}) == ["b"]


@given(st.lists(st.tuples(st.floats(1, 8), st.floats(1e-5, 1)), max_size=20))
def test_labels_of_near_points_keep_a_factor_apart(points: list[tuple[float, float]]) -> None:
    named = [(x, y, str(i)) for i, (x, y) in enumerate(points)]
    placed = spread_labels(named, near=lambda a, b: abs(a - b) < NEAR, gap=LABEL_GAP)
    for i, (x, value, _, height) in enumerate(placed):
        assert height >= value
        for other_x, _, _, other in placed[:i]:
            if abs(x - other_x) < NEAR:
                assert height >= other * LABEL_GAP * (1 - 1e-9)


def test_rows_without_quality_are_left_out_of_the_figure() -> None:
    ax = plot_cache_quality([QualityRow("a", stored_bytes=1)], groups={"all": ["a", "missing"]})
    assert not ax.texts


@pytest.mark.parametrize("model", ["gpt-oss-20b", "deepseek-v3", "mimo-v2-flash"])
def test_layers_that_these_caches_are_not_made_for_are_refused(model: str) -> None:
    spec = load_model(model).spec()
    with pytest.raises(UsageError, match=f"{model}, attention layer 0: .* full attention"):
        cache_bytes(cache_kinds()["int4, K per token"], spec=spec, texts_tokens=[100])
