from __future__ import annotations

import subprocess
import sys

import pytest

from turbo_lab.core.config import Dials
from turbo_lab.core.errors import EngineError, RecordError, UnmeasuredError, UsageError
from turbo_lab.course import start_lesson
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.replay import Live
from turbo_lab.records import store


def fail(reason):
    raise UnmeasuredError(reason)


UNKNOWN = None


def never():
    raise AssertionError("a measuring function was called in replay")


def test_measuring_before_predicting_says_what_to_do(live):
    with pytest.raises(UsageError, match=r"lab\.predict\('ttft_s', value, unit='s'"):
        live.measure("ttft_s", never, unit="s")


def test_a_prediction_may_change_until_it_is_measured(live):
    live.predict("x", 1, unit="s", tolerance=0.1)
    live.predict("x", 2, unit="s", tolerance=0.1)
    live.measure("x", lambda: 2, unit="s")
    live.predict("x", 2, unit="s", tolerance=0.1, why="the same cell run again")
    with pytest.raises(UsageError, match="locked: 2 s, within 10 %"):
        live.predict("x", 3, unit="s", tolerance=0.1)
    with pytest.raises(UsageError, match="locked"):
        live.predict("x", 2, unit="s", tolerance=0.5)
    assert live.met("x") is True


def test_a_lock_holds_for_large_whole_numbers_too(live):
    live.predict("weights_bytes", 10**12, unit="B", tolerance=0.0)
    live.measure("weights_bytes", lambda: 10**12 + 1, unit="B")
    with pytest.raises(UsageError, match="locked"):
        live.predict("weights_bytes", 10**12 + 1, unit="B", tolerance=0.0)


def test_a_measurement_that_crashes_locks_the_prediction_too(live):
    live.predict("x", 1, unit="s", tolerance=0.1)
    with pytest.raises(ZeroDivisionError):
        live.measure("x", lambda: 1 / 0, unit="s")
    with pytest.raises(UsageError, match="locked"):
        live.predict("x", 2, unit="s", tolerance=0.1)
    assert live.record().complete is False


def test_a_new_lesson_starts_fresh(live):
    live.predict("x", 1, unit="s", tolerance=0.1)
    live.measure("x", lambda: 1, unit="s")
    again = Lesson("01", dials=live.dials, source=Live())
    again.predict("x", 5, unit="s", tolerance=0.1)


@pytest.mark.parametrize(
    "bad",
    [
        {"tolerance": None},
        {"tolerance": 0.1, "band": (0, 1)},
        {"tolerance": -0.1},
        {"tolerance": float("nan")},
        {"band": (2, 1)},
        {"band": (None, None)},
        {"band": (1,)},
    ],
)
def test_a_prediction_needs_one_sound_criterion(live, bad):
    with pytest.raises(UsageError, match="predict"):
        live.predict("x", 1, unit="s", **bad)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "5", None, [1]])
def test_a_prediction_must_be_a_finite_number(live, value):
    with pytest.raises(UsageError, match="finite number"):
        live.predict("x", value, unit="s", tolerance=0.1)


@pytest.mark.parametrize("name", ["", "TTFT", "a b", "1x", "predicted", 3])
def test_bad_names_are_refused(live, name):
    with pytest.raises(UsageError, match="cannot be a name"):
        live.predict(name, 1, unit="s", tolerance=0.1)


def test_units_must_agree(live):
    live.predict("x", 1, unit="s", tolerance=0.1)
    with pytest.raises(UsageError, match="predicted in 's', not in 'ms'"):
        live.measure("x", lambda: 1, unit="ms")


@pytest.mark.parametrize("compute", [lambda: 3 * UNKNOWN, lambda: UNKNOWN, lambda: UNKNOWN["ttft"]])
def test_arithmetic_with_an_unmeasured_number_is_no_prediction(live, compute):
    live.predict("x", compute, unit="s", tolerance=0.1)
    live.measure("x", lambda: 1, unit="s")
    assert live.compare()["x"].reason == "no prediction: a number it needs is unmeasured"


def test_other_errors_in_a_prediction_stop_the_cell(live):
    with pytest.raises(TypeError, match="unsupported operand"):
        live.predict("x", lambda: "a" - 1, unit="s", tolerance=0.1)


def test_a_prediction_that_needs_a_missing_number_says_so(live):
    live.predict("bandwidth", 10, unit="GB/s", tolerance=0.5)
    live.measure("bandwidth", lambda: None or fail("no sensor"), unit="GB/s")
    live.predict("step_s", lambda: 1 / live.number("bandwidth"), unit="s", tolerance=0.2)
    live.measure("step_s", lambda: 0.1, unit="s")
    row = live.compare()["step_s"]
    assert (row.predicted, row.measured, row.verdict) == (None, 0.1, "unmeasured")
    assert "no sensor" in row.reason


@pytest.mark.parametrize("notebook", ["1", "001", "xx", ""])
def test_the_notebook_is_two_digits(notebook):
    with pytest.raises(UsageError, match="two digits"):
        start_lesson(notebook, mode="replay")


def test_a_failed_engine_makes_measurements_unmeasured(live, capsys):
    def start():
        raise EngineError("vllm serve ended while starting")

    server = live.engine(start)
    assert "no engine: vllm serve ended while starting" in capsys.readouterr().out
    live.predict("x", 1, unit="s", tolerance=0.1)
    shown = live.measure("x", lambda: server.metrics()["x"], unit="s")
    assert shown.reason == "vllm serve ended while starting"


def test_importing_the_course_is_cheap():
    code = (
        "import sys, turbo_lab.course; "
        "heavy = {'pydantic', 'yaml', 'numpy', 'papermill', 'IPython'} & set(sys.modules);"
        "assert not heavy, heavy; from turbo_lab.course import start_lesson, check, reveal; "
        "heavy = {'pandas', 'torch', 'matplotlib', 'papermill', 'IPython'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_step_is_on_disk(live, run_folder):
    live.predict("x", 1, unit="s", tolerance=0.1)
    live.predict("y", 1, unit="s", tolerance=0.1)
    live.measure("x", lambda: [1, 2], unit="s")
    record = store.load(run_folder / "records" / "nb01.json")
    assert record.complete is False and record.measurements[0].samples == (1, 2)
    live.measure("y", lambda: 5, unit="s")
    live.compare()
    record = store.load(run_folder / "records" / "nb01.json")
    assert record.complete and (record.predictions_met, record.predictions_total) == (0, 2)


def test_conditions_are_in_the_record(live, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"weights")

    class Server:
        def effective_config(self):
            return {"engine": "vllm", "version": "0.32.0", "model": str(tmp_path / "model"),
                    "command": ["serve", "--api-key", "abc"]}  # fmt: skip

    assert isinstance(live.engine(Server), Server)
    live.declare(seed=7, command=["bench"], workload=["a prompt"], concurrency=4)
    record = live.record()
    assert (record.seed, record.command, record.variables) == (7, ("bench",), {"concurrency": 4})
    assert record.workload_digest.startswith("sha256:")
    engine = store.load(live.save()).engines[0]
    assert engine.version == "0.32.0" and engine.model_sha256.startswith("sha256:")
    assert engine.command == ("serve", "--api-key", "[redacted]")
    assert record.environment.cores >= 1 and record.environment.packages["numpy"]


def test_a_full_disk_is_told_and_loses_no_table(live, tmp_path, capsys):
    (tmp_path / "run").write_text("a file where the folder should be")
    live.predict("x", 1, unit="s", tolerance=0.1)
    live.measure("x", lambda: 1, unit="s")
    assert live.compare().met == 1
    assert "The record was not saved" in capsys.readouterr().out
    with pytest.raises(RecordError, match="could not be written"):
        live.save()


def test_by_hand_the_record_goes_below_runs(monkeypatch):
    monkeypatch.delenv("TURBO_LAB_RUN_DIR", raising=False)
    lesson = Lesson("01", dials=Dials("cpu", "quick", "a test"), source=Live())
    assert lesson.path.parts[-4] == "runs" and lesson.path.parts[-3].startswith("by-hand-")
