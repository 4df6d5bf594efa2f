from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.pipeline import bubble_fraction, uneven_pipeline_s
from turbo_lab.parallel.schedule import (
    SCHEDULES,
    Order,
    Slot,
    Task,
    bubble_share,
    decode_bubble,
    decode_order,
    idle_shares,
    most_kept,
    needs,
    slots_from,
    timetable,
    training_order,
    typical_durations,
)

small = st.integers(1, 6)
schedules = st.sampled_from(SCHEDULES)
orders = st.one_of(
    st.builds(
        lambda name, p, m: training_order(name, stages=p, micro_batches=m), schedules, small, small
    ),
    st.builds(
        lambda p, m, k: decode_order(stages=p, micro_batches=m, steps=k), small, small, small
    ),
)


def duration(task: Task) -> float:
    """Some positive time, different for most tasks."""
    mixed = 7 * task.stage + 3 * task.micro_batch + 5 * task.step + (task.kind == "backward")
    return 0.5 + mixed % 11


def check(order: Order, slots: list[Slot], transfer_s: float) -> None:
    assert sorted(s.task for s in slots) == sorted(task for row in order for task in row)
    by_task = {slot.task: slot for slot in slots}
    by_stage: dict[int, list[Slot]] = defaultdict(list)
    for slot in slots:
        by_stage[slot.task.stage].append(slot)
        for other in needs(slot.task, stages=len(order)):
            away = transfer_s if other.stage != slot.task.stage else 0.0
            assert slot.start_s >= by_task[other].end_s + away - 1e-9
    for stage, row in by_stage.items():
        ordered = sorted(row, key=lambda slot: slot.start_s)
        assert [slot.task for slot in ordered] == list(order[stage])
        assert all(a.end_s <= b.start_s + 1e-9 for a, b in pairwise(ordered))


@given(orders, st.floats(0, 3))
def test_timetable_respects_inputs_order_and_one_thing_at_a_time(
    order: Order, transfer_s: float
) -> None:
    check(order, timetable(order, duration=duration, transfer_s=transfer_s), transfer_s)


@given(orders)
def test_every_micro_batch_visits_the_stages_in_order(order: Order) -> None:
    seen: dict[tuple[int, int], list[Slot]] = defaultdict(list)
    for slot in timetable(order, duration=duration):
        if slot.task.kind == "forward":
            seen[slot.task.micro_batch, slot.task.step].append(slot)
    for row in seen.values():
        assert [slot.task.stage for slot in row] == list(range(len(order)))


@given(orders)
def test_messages_are_received_in_the_order_they_are_sent(order: Order) -> None:
    """Sends and receives carry no numbers, so the orders of neighbours must agree."""
    for upper, lower in pairwise(order):
        for kind in ("forward", "backward"):
            assert [(t.micro_batch, t.step) for t in upper if t.kind == kind] == [
                (t.micro_batch, t.step) for t in lower if t.kind == kind
            ]


@given(schedules, small, small, st.floats(0.1, 5), st.floats(0.1, 5))
def test_bubble_of_equal_stages_is_the_formula(
    name: str, stages: int, micro_batches: int, forward_s: float, backward_s: float
) -> None:
    order = training_order(name, stages=stages, micro_batches=micro_batches)
    slots = timetable(order, duration={"forward": forward_s, "backward": backward_s})
    expected = bubble_fraction(stages, micro_batches=micro_batches)
    assert bubble_share(slots, stages=stages) == pytest.approx(expected, abs=1e-9)


@given(small, small, small)
def test_bubble_of_decoding_is_the_formula(stages: int, micro_batches: int, steps: int) -> None:
    order = decode_order(stages=stages, micro_batches=micro_batches, steps=steps)
    slots = timetable(order, duration={"forward": 1.0})
    expected = decode_bubble(stages=stages, micro_batches=micro_batches, steps=steps)
    assert bubble_share(slots, stages=stages) == pytest.approx(expected, abs=1e-9)


def test_decode_needs_as_many_micro_batches_as_stages() -> None:
    assert decode_bubble(stages=3, micro_batches=3, steps=1000) < 0.001
    assert decode_bubble(stages=3, micro_batches=1, steps=1000) == pytest.approx(2 / 3, abs=1e-3)


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=5), small)
def test_slowest_stage_sets_the_pace(stage_s: list[float], micro_batches: int) -> None:
    order = decode_order(stages=len(stage_s), micro_batches=micro_batches, steps=1)
    slots = timetable(order, duration=lambda task: stage_s[task.stage])
    wanted = uneven_pipeline_s(stage_s, micro_batches=micro_batches)
    assert max(slot.end_s for slot in slots) == pytest.approx(wanted)


@given(small, small)
def test_1f1b_keeps_fewer_activations_for_the_same_bubble(stages: int, micro_batches: int) -> None:
    gpipe = training_order("GPipe", stages=stages, micro_batches=micro_batches)
    one = training_order("1F1B", stages=stages, micro_batches=micro_batches)
    assert [most_kept(row) for row in gpipe] == [micro_batches] * stages
    assert [most_kept(row) for row in one] == [
        min(micro_batches, stages - stage) for stage in range(stages)
    ]


def test_idle_share_of_each_stage() -> None:
    slots = [Slot(Task(0, 0), 0.0, 1.0), Slot(Task(1, 0), 1.0, 4.0)]
    assert idle_shares(slots, stages=2) == [0.75, 0.25]


def test_orders_that_block_each_other_are_refused() -> None:
    upper = (Task(0, 0), Task(0, 0, "backward"))
    lower = (Task(1, 0, "backward"), Task(1, 0))  # its backward before its forward
    with pytest.raises(UsageError, match="block each other.*stage=1.*backward"):
        timetable((upper, lower), duration=duration)


def test_wrong_values_name_the_allowed_ones() -> None:
    with pytest.raises(UsageError, match="Allowed: 1F1B, GPipe"):
        training_order("1f1b", stages=2, micro_batches=2)
    with pytest.raises(UsageError, match="micro_batches is 0"):
        decode_order(stages=2, micro_batches=0, steps=1)


@given(schedules, small, small)
def test_one_measured_run_predicts_another_number_of_micro_batches(
    name: str, stages: int, micro_batches: int
) -> None:
    def speed(task: Task) -> float:
        return (1.0 + task.stage) * (2.0 if task.kind == "backward" else 1.0)

    short = timetable(training_order(name, stages=stages, micro_batches=1), duration=speed)
    order = training_order(name, stages=stages, micro_batches=micro_batches)
    assert timetable(order, duration=typical_durations(short)) == timetable(order, duration=speed)


def test_slots_survive_the_form_in_which_jobs_return_them() -> None:
    rows = [(1, 2, "backward", 0, 0.5, 1.5)]
    assert slots_from(rows) == [Slot(Task(1, 2, "backward", 0), 0.5, 1.5)]
