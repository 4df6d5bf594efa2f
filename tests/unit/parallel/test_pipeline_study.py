"""Reading a pipeline study, and the jobs behind it on one rank."""

from __future__ import annotations

from typing import Any

import pytest

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.parallel.pipeline_arms import Arm, Studied, decode_part, forecast
from turbo_lab.parallel.pipeline_study import run_study
from turbo_lab.parallel.schedule import rows_from

ROWS = [
    [0, 0, "forward", 0, 0.0, 1.0], [1, 0, "forward", 0, 1.0, 4.0],
    [0, 0, "forward", 1, 4.0, 5.0], [1, 0, "forward", 1, 5.0, 7.0],
]  # fmt: skip
DATA: dict[str, Any] = {
    "runs": {"a": [{"slots": ROWS, "kept_bytes": [3, 4]}]},
    "tokens": {"a": [[1, 2]]},
    "sent_bytes": {"a": 8},
    "weight_bytes": [5, 6],
}


def test_a_study_is_read_by_arm() -> None:
    study = Studied(2, DATA)
    assert study.stage_s("a") == [1.0, 3.0] and study.stage_s("a", decode=True) == [1.0, 2.0]
    assert study.seconds("a") == [7.0] and study.seconds("a", decode=True) == [3.0]
    assert study.idle("a", decode=True) == [pytest.approx(0.5)]
    assert study.idle("a") == [pytest.approx(0.5)]
    assert (study.kept_bytes("a"), study.tokens("a")) == ([3, 4], [[1, 2]])
    assert (study.sent_bytes("a"), study.weight_bytes) == (8, [5, 6])
    assert [len(run) for run in study.passes("a", decode=True)] == [2]


def test_an_unknown_arm_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="no arm 'b'; allowed: a"):
        Studied(2, DATA).idle("b")
    with pytest.raises(UnmeasuredError, match="did not run"):
        Studied(2, None).idle("b")


def test_rows_are_counted_and_empty_studies_refused() -> None:
    assert Arm("x", 3, 4, 16).rows == 12
    with pytest.raises(UsageError, match="0 arms"):
        run_study("nowhere", arms=[], stages=2)


def test_a_forecast_is_the_timetable_of_the_stages_times() -> None:
    arm = Arm("x", 2, 1, 8, steps=3)
    slots = forecast(arm, prefill_s=[1.0, 1.0], decode_s=[1.0, 2.0])
    assert len(slots) == 12 and max(s.end_s for s in slots) == 11.0
    assert len(decode_part(slots)) == 8
    study = Studied(2, {"runs": {"x": [{"slots": rows_from(slots)}]}})
    assert study.passes("x") == [slots]
    with pytest.raises(UsageError, match="as many of both"):
        forecast(arm, prefill_s=[1.0, 1.0])
    with pytest.raises(UsageError, match="without a schedule"):
        forecast(Arm("t", 2, 1, 8, schedule="GPipe"), prefill_s=[1.0])


def small_study(*arms: Arm, passes: int = 1) -> dict[str, Any]:
    """The job on one rank, on a small random model."""
    pytest.importorskip("torch", reason="needs the cpu environment")
    from dataclasses import asdict

    from turbo_lab.parallel.comm import Comm
    from turbo_lab.parallel.pipeline_study import study_job
    from turbo_lab.parallel.weights import small_config

    prompts = [[1 + (7 * row + n) % 90 for n in range(6)] for row in range(8)]
    return study_job(
        Comm.single(), model=small_config(), prompts=prompts,
        arms=[asdict(arm) for arm in arms], passes=passes,
    )  # fmt: skip


def test_one_rank_keeps_every_micro_batch_of_gpipe_and_one_of_1f1b() -> None:
    found = small_study(
        Arm("one", 1, 2, 6, schedule="GPipe"), Arm("GPipe", 4, 2, 6, schedule="GPipe"),
        Arm("1F1B", 4, 2, 6, schedule="1F1B"),
    )["runs"]  # fmt: skip
    one = found["one"][0]["kept_bytes"]
    assert one > 1000
    assert found["GPipe"][0]["kept_bytes"] == 4 * one
    assert found["1F1B"][0]["kept_bytes"] == one


def test_arms_run_in_turns_and_write_the_same_text() -> None:
    found = small_study(
        Arm("whole", 1, 4, 6, steps=3), Arm("parts", 2, 2, 6, steps=3),
        Arm("alone", 1, 4, 6, steps=3, alone=True), passes=2,
    )  # fmt: skip
    tokens = found["tokens"]
    assert tokens["whole"] == tokens["parts"] == tokens["alone"]
    assert [len(row) for row in tokens["whole"]] == [3] * 4
    assert [len(found["runs"]["parts"]), len(found["runs"]["parts"][0]["slots"])] == [2, 6]
    assert found["sent_bytes"]["whole"] == 0  # one stage sends nothing


def test_saved_activations_are_all_freed_again() -> None:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    from turbo_lab.parallel.pipeline_memory import KeptActivations

    weight = torch.ones(4, 4, requires_grad=True)
    meter = KeptActivations([weight])
    with meter.counting():
        first = (torch.ones(8, 4) @ weight).exp()
        assert meter.live_bytes == 2 * 8 * 4 * 4  # the input of the product, the output of exp
        second = (torch.ones(2, 4) @ weight).exp()
        first.sum().backward()
        assert meter.live_bytes == 2 * 2 * 4 * 4
        second.sum().backward()
    assert meter.live_bytes == 0 and meter.most_bytes == 2 * 10 * 4 * 4


class Ranks:
    """A group as the stopwatch sees it: this rank's moment is 3, the others' are given."""

    def __init__(self, *others: tuple[str, float]) -> None:
        self.others = others

    def barrier(self) -> None:
        """Nobody to wait for."""

    def gather_objects(self, value: tuple[str, float]) -> list[tuple[str, float]]:
        return [value, *self.others]


@pytest.mark.parametrize(("clock", "wanted"), [("this", 5.0), ("another", 3.0)])
def test_ranks_of_one_machine_share_the_origin_of_time(
    monkeypatch: pytest.MonkeyPatch, clock: str, wanted: float
) -> None:
    pytest.importorskip("torch", reason="needs the cpu environment")
    from turbo_lab.parallel import pipeline

    monkeypatch.setattr(pipeline.host, "clock_id", lambda: "this")
    monkeypatch.setattr(pipeline.time, "perf_counter", lambda: 3.0)
    watch = pipeline.Stopwatch(Ranks((clock, 5.0)))  # type: ignore[arg-type]
    watch.begin()
    assert watch.start_s == wanted
