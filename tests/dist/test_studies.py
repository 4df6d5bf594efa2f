"""Notebook 10's studies on the bundled model: sharded equals unsharded, bytes equal formulas."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the cpu environment")

from turbo_lab.engines import local_model
from turbo_lab.estimate.experts import capacity, dropped_share
from turbo_lab.estimate.pipeline import kept_micro_batches, stage_weight_bytes
from turbo_lab.estimate.tensor_parallel import bytes_per_layer
from turbo_lab.models.spec import ModelSpec
from turbo_lab.parallel import expert_study
from turbo_lab.parallel.expert_layer import LayerArm, LayerRun, run_layer
from turbo_lab.parallel.partition import split_layers
from turbo_lab.parallel.payload import pipeline_bytes
from turbo_lab.parallel.pipeline_arms import Arm, Studied
from turbo_lab.parallel.pipeline_study import run_study
from turbo_lab.parallel.schedule import needs
from turbo_lab.parallel.weights import open_weights

pytestmark = pytest.mark.alone
STEPS, PROMPT, LAYERS = 3, 12, 4
ARMS = (
    Arm("alone", 1, 4, PROMPT, STEPS, alone=True),
    Arm("even", 2, 2, PROMPT, STEPS),
    Arm("balanced", 4, 1, PROMPT, STEPS, split=((0, 19), (19, 30))),
    Arm("one", 1, 1, PROMPT, schedule="GPipe"),
    Arm("GPipe", 3, 1, PROMPT, schedule="GPipe"),
    Arm("1F1B", 3, 1, PROMPT, schedule="1F1B"),
)


@pytest.fixture(scope="module")
def model() -> str:
    return str(local_model.prepare())


@pytest.fixture(scope="module")
def spec(model: str) -> ModelSpec:
    return open_weights(model).spec


@pytest.fixture(scope="module")
def two(model: str) -> Studied:
    return Studied(2, run_study(model, arms=ARMS, stages=2))


@pytest.fixture(scope="module")
def spread(model: str) -> dict[str, Any]:
    return expert_study.run_spread(
        model, experts=8, k=2, requests=4, prompt_tokens=PROMPT, new_tokens=STEPS, layers=LAYERS
    )


def test_two_stages_write_the_text_of_the_whole_bundled_model(two: Studied) -> None:
    whole = two.tokens("alone")
    assert [len(row) for row in whole] == [STEPS] * 4
    assert two.tokens("even") == two.tokens("balanced") == whole


def test_no_task_starts_before_its_input_was_computed(two: Studied) -> None:
    for arm in ("even", "balanced", "GPipe", "1F1B"):
        for run in two.passes(arm):
            by_task = {slot.task: slot for slot in run}
            for slot in run:
                for other in needs(slot.task, stages=2):
                    assert slot.start_s >= by_task[other].end_s  # one clock for both ranks


def test_two_stages_send_exactly_what_the_formula_says(two: Studied, spec: ModelSpec) -> None:
    tokens = 4 * (PROMPT + STEPS - 1)
    assert two.sent_bytes("even") == pipeline_bytes(spec, tokens=tokens, stages=2) > 0
    assert two.sent_bytes("balanced") == two.sent_bytes("even")  # where it is cut does not matter
    assert two.weight_bytes == stage_weight_bytes(
        spec, split_layers(len(spec.layers), stages=2), element_bytes=4
    )


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
def test_a_stage_keeps_as_many_micro_batches_as_its_schedule_says(
    two: Studied, schedule: str
) -> None:
    one, found = two.kept_bytes("one"), two.kept_bytes(schedule)
    for stage in (0, 1):
        kept = kept_micro_batches(schedule, stages=2, stage=stage, micro_batches=3)
        assert found[stage] == kept * one[stage] > 0


@pytest.mark.parametrize("ranks", ["2", "4"])
def test_experts_of_the_bundled_model_over_ranks_equal_the_unsharded_moe(
    spread: dict[str, Any], spec: ModelSpec, ranks: str
) -> None:
    assert spread[ranks]["tokens"] == spread["1"]["tokens"]
    assert [len(row) for row in spread["1"]["tokens"]] == [STEPS] * 4
    pairs = LAYERS * 4 * (PROMPT + STEPS - 1) * 2
    for label in ("dispatch", "combine"):
        found = expert_study.payload_bytes(spread[ranks]["tallies"], label)
        assert found == pairs * spec.hidden * 4
    assert expert_study.payload_bytes(spread["1"]["tallies"], "dispatch") == 0


def test_three_layouts_of_one_model_write_one_text(model: str, spec: ModelSpec) -> None:
    found = expert_study.run_layouts(
        model, ranks=3, experts=6, k=2, requests=3, prompt_tokens=PROMPT, new_tokens=STEPS,
        layers=LAYERS,
    )  # fmt: skip
    whole = found["alone"]["tokens"]
    assert found["tensor"]["tokens"] == found["pipeline"]["tokens"] == whole
    assert len(found["experts"]["tokens"]) == 3  # an MoE with k < E is another model
    tokens = 3 * (PROMPT + STEPS - 1)
    tensor = expert_study.sent_bytes(found["tensor"]["tallies"], "attention", "mlp")
    assert tensor == pytest.approx(
        LAYERS * bytes_per_layer(spec, tokens=tokens, element_bytes=4) * 4 / 3
    )
    sent = expert_study.sent_bytes(found["pipeline"]["tallies"], "activation") * 3
    assert sent == pipeline_bytes(spec, tokens=tokens, stages=3)


def test_one_layer_drops_what_capacity_says_and_its_experts_wait_for_the_fullest(
    model: str,
) -> None:
    arms = [LayerArm("even", "even"), LayerArm("all", "clustered"),
            LayerArm("one", "collapsed"), LayerArm("capacity", "clustered", 1.0)]  # fmt: skip
    found = run_layer(model, arms=arms, layer=3, experts=8, k=2, rows=4, prompt_tokens=32, passes=1)
    runs = {name: LayerRun(**one) for name, one in found.items()}
    places = capacity(2 * 32, experts=8, experts_per_token=2)  # for the tokens of one rank
    free = runs["all"].loads
    wanted = sum(dropped_share(load, slots=places) for load in free) / len(free)
    assert runs["capacity"].dropped_share == pytest.approx(wanted)
    assert runs["capacity"].error > 0 and runs["all"].error < 1e-5
    assert runs["even"].rank_imbalance(ranks=2) == 1.0
    assert runs["one"].rank_imbalance(ranks=2) == 2.0 and runs["one"].load[2:] == [0] * 6
    assert [len(pass_s) for pass_s in runs["all"].experts_s] == [2]
