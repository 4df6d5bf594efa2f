"""The solutions of notebook 09 and the package give the same numbers; wrong answers fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.course.checks.nb09 import EXERCISES
from turbo_lab.course.exercises import find_solution
from turbo_lab.course.grading import grade
from turbo_lab.course.solutions import nb09
from turbo_lab.estimate.split_gain import SplitStep, break_even_latency_s
from turbo_lab.estimate.tensor_parallel import Exchange, bytes_per_layer, split_heads
from turbo_lab.models.catalog import load_model
from turbo_lab.models.spec import from_hf_config
from turbo_lab.parallel.weights import small_config

SPEC = load_model("smollm2-135m").spec()
COUNTS, TIMES = st.integers(1, 12), st.floats(0, 1)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda one: one.id)
def test_the_solution_is_correct_and_known_mistakes_are_told(exercise) -> None:
    solution = find_solution(exercise.id)
    answer = solution if exercise.wants_function else solution()
    assert grade(exercise, answer).status == "correct"
    assert len(exercise.mistakes) >= 2
    for mistake in exercise.mistakes:
        result = grade(exercise, mistake.answer)
        assert result.status == "wrong" and mistake.hint in result.message, result.message


def test_the_exercises_are_numbered_in_order() -> None:
    assert [one.id for one in EXERCISES] == [f"09.{n}" for n in range(1, 7)]


def test_the_cuts_are_those_of_the_layers() -> None:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    from turbo_lab.parallel.comm import Comm
    from turbo_lab.parallel.stage import Stage
    from turbo_lab.parallel.tensor import RowLinear
    from turbo_lab.parallel.weights import random_weights

    assert torch.__version__
    block = Stage(random_weights(small_config()), comm=Comm.single()).blocks[0]
    attention, mlp = block.attention, block.feed_forward
    layers = {
        "q_proj": attention.query, "k_proj": attention.key, "v_proj": attention.value,
        "o_proj": attention.out, "gate_proj": mlp.gate, "up_proj": mlp.up, "down_proj": mlp.down,
    }  # fmt: skip
    found = {k: "row" if isinstance(v, RowLinear) else "column" for k, v in layers.items()}
    assert nb09.cuts() == found


@given(COUNTS, st.sampled_from([1, 2, 4]))
def test_exchanged_bytes(tokens: int, size: int) -> None:
    told = len(SPEC.layers) * bytes_per_layer(SPEC, tokens=tokens, element_bytes=size)
    assert nb09.exchanged_bytes(len(SPEC.layers), SPEC.hidden, tokens, size) == told


@given(st.integers(0, 10**9), COUNTS)
def test_sent_by_rank(size: int, ranks: int) -> None:
    told = Exchange("all_reduce", "layers", 1, size).payload_bytes(ranks=ranks)
    assert nb09.sent_by_rank(size, ranks) == pytest.approx(told)


@given(st.integers(1, 8), st.integers(1, 4), COUNTS)
def test_kv_heads(kv: int, group: int, ranks: int) -> None:
    heads = kv * group
    spec = from_hf_config(
        small_config(num_attention_heads=heads, num_key_value_heads=kv, hidden_size=8 * heads),
        name="any",
    )
    found = nb09.kv_heads(heads, kv, ranks)
    if found is None:
        with pytest.raises(UsageError):
            split_heads(spec.attention_layers[0], ranks=ranks)
    else:
        told = split_heads(spec.attention_layers[0], ranks=ranks)
        assert found == (told.kv_heads, told.copies)


@given(TIMES, TIMES, COUNTS, COUNTS)
def test_step(share_s: float, cost_s: float, ranks: int, cores: int) -> None:
    told = SplitStep(share_s, cost_s, ranks, cores).seconds
    assert nb09.step_s(share_s, cost_s, ranks, cores) == pytest.approx(told)


@given(st.floats(1e-3, 1), st.integers(2, 12), COUNTS)
def test_break_even_latency(whole_s: float, ranks: int, layers: int) -> None:
    listed = [Exchange("all_reduce", "layers", 2 * layers, 0)]
    told = break_even_latency_s(whole_s, listed, ranks=ranks, bandwidth_bytes_s=1.0)
    assert nb09.break_even_latency_s(whole_s, ranks, layers) == pytest.approx(told)
