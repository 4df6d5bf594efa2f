"""The fit recovers a known law, ignores a disturbed point, and its judge can say no."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.fit import (
    StepModel,
    aa_noise,
    fit_error,
    fit_step_model,
    loose_roof,
)
from turbo_lab.estimate.points import MeasuredStep, StepPoint, decode_grid, prefill_points
from turbo_lab.hardware.roofline import Roof
from turbo_lab.models.spec import from_hf_config

SPEC = from_hf_config(
    {
        "model_type": "llama", "num_hidden_layers": 30, "hidden_size": 576,
        "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
        "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
)  # fmt: skip
ROOF = Roof(400e9, 40e9, "a quiet 2-core machine")
TRUE = StepModel(SPEC, ROOF, 2, "bf16", step_s=0.02, sequence_s=0.9e-3,
                 inverse_cache_efficiency=2.5, request_s=0.02, inverse_linear_efficiency=1.6,
                 inverse_attention_efficiency=4.0)  # fmt: skip
FIT = [*decode_grid(batches=(1, 6, 16), contexts=(144, 640, 1008)), *prefill_points((80, 320, 960))]
JUDGE = [
    *decode_grid(batches=(1, 2, 4, 8, 16), contexts=(128, 256, 512, 768, 1024)),
    *prefill_points((64, 128, 512, 1024)),
]


def measured(points: list[StepPoint], *, noise: float = 0.0, seed: int = 0) -> list[MeasuredStep]:
    rng = random.Random(seed)
    return [
        MeasuredStep(
            p, tuple(TRUE.predict(p) * (1 + noise * abs(rng.gauss(0, 1))) for _ in range(4))
        )
        for p in points
    ]


def fit(points: list[MeasuredStep]) -> StepModel:
    return fit_step_model(points, spec=SPEC, roof=ROOF, weight_bytes=2, kv_dtype="bf16")


def test_a_known_law_is_found_again() -> None:
    found = fit(measured(FIT))
    for name in ("step_s", "sequence_s", "inverse_cache_efficiency", "request_s",
                 "inverse_linear_efficiency", "inverse_attention_efficiency"):  # fmt: skip
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=1e-3), name
    assert fit_error(found, measured(JUDGE)).worst < 1e-3
    assert found.cache_efficiency == pytest.approx(0.4, rel=1e-3)
    assert found.host_s == pytest.approx(0.02 - 2 * 134_515_008 / 40e9, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_unseen_points_are_predicted_through_noise(seed: int) -> None:
    error = fit_error(fit(measured(FIT, noise=0.05, seed=seed)), measured(JUDGE, seed=seed + 100))
    assert error.median < 0.05


def test_one_disturbed_point_does_not_move_the_rest() -> None:
    points = measured(FIT)
    disturbed = MeasuredStep(points[4].point, tuple(10 * p for p in points[4].passes))
    found = fit([*points[:4], disturbed, *points[5:]])
    assert fit_error(found, measured(JUDGE)).median < 0.02


def test_the_judge_can_say_no() -> None:
    wrong = [MeasuredStep(m.point, tuple(1.5 * p for p in m.passes)) for m in measured(JUDGE)]
    error = fit_error(fit(measured(FIT)), wrong)
    assert error.median == pytest.approx(1 / 3, rel=0.01)
    assert not error.within(0.10)


def test_noise_is_the_difference_of_two_measurements_of_one_point() -> None:
    point = StepPoint("decode", 1, 128)
    assert aa_noise([MeasuredStep(point, (1.0, 1.2, 1.1, 1.3))]) == pytest.approx(0.2)
    assert aa_noise([MeasuredStep(point, (1.0,))]) is None
    error = fit_error(TRUE, [MeasuredStep(point, (0.03, 0.06))])
    assert error.noise == pytest.approx(1.0) and error.within(0.0) == (error.median <= 1.0)


def test_a_prediction_never_goes_below_the_bound() -> None:
    free = StepModel(SPEC, ROOF, 2, "bf16", 0, 0, 0, 0, 0, 0)
    assert free.decode_s(batch=4, context_tokens=100) == free.bound_s([(1, 99)] * 4) > 0
    assert free.prefill_s(tokens=100) == free.bound_s([(100, 0)])


@settings(max_examples=30)
@given(st.integers(1, 32), st.integers(1, 2048))
def test_a_mixed_step_without_a_prompt_is_a_decode_step(batch: int, context: int) -> None:
    mixed = TRUE.mixed_step_s(decode_contexts=[context] * batch)
    assert mixed == pytest.approx(TRUE.decode_s(batch=batch, context_tokens=context))
    more = TRUE.mixed_step_s(decode_contexts=[context] * batch, prefill=[(256, 0)])
    assert more == pytest.approx(mixed + TRUE.prefill_work_s(tokens=256))


def test_too_few_points_are_refused() -> None:
    with pytest.raises(UsageError, match="at least three"):
        fit(measured(FIT[:9]))
    with pytest.raises(UsageError, match="no points"):
        fit_error(TRUE, [])


def test_a_loose_roof_bounds_no_step_and_changes_no_prediction() -> None:
    points = measured(FIT)
    roof = loose_roof(points, spec=SPEC, weight_bytes=2, kv_dtype="bf16")
    model = fit_step_model(points, spec=SPEC, roof=roof, weight_bytes=2, kv_dtype="bf16")
    assert all(model.bound_s(m.point.sequences) <= m.seconds / 4 * (1 + 1e-9) for m in points)
    probed = fit(points)
    mixed = {"decode_contexts": [200] * 8, "prefill": [(128, 0)] * 15}
    assert model.mixed_step_s(**mixed) == pytest.approx(probed.mixed_step_s(**mixed), rel=1e-3)
    assert fit_error(model, measured(JUDGE)).worst < 1e-3, "the scale of the roof does not matter"
    with pytest.raises(UsageError, match="no points"):
        loose_roof([], spec=SPEC, weight_bytes=2)
