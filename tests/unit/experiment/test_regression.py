"""The gate: a planted slowdown is stopped with exit code 1, an unchanged build is let through."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import TurboLabError, UsageError
from turbo_lab.experiment.arms import Arm, load_arm
from turbo_lab.experiment.regression import planted, run_gate, smallest_seen, write_arm

from .trials import load, made_trial


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """All arms equally fast, each with its own scatter."""
    folder = tmp_path_factory.mktemp("gate")
    return load(folder, made_trial(folder))


@pytest.fixture(scope="module")
def original(trial):
    return trial.original


@pytest.mark.parametrize("metric", ["ttft", "throughput"])
def test_a_planted_regression_fails_the_gate_and_the_same_build_passes(original, tmp_path, metric):
    main = planted(original, slower=1.0, build="main")
    same = run_gate(main, planted(original, slower=1.0), metric=metric, folder=tmp_path / "same")
    slow = run_gate(main, planted(original, slower=1.2), metric=metric, folder=tmp_path / "slow")
    fast = run_gate(main, planted(original, slower=0.8), metric=metric, folder=tmp_path / "fast")
    assert [run.exit_code for run in (same, slow, fast)] == [0, 1, 0]
    assert slow.lines[-1] == "gate: failed (worse)"
    assert any("because build changed from 'main' to 'planted'" in x for x in slow.lines)


@pytest.mark.parametrize(("slower", "exit_code"), [(1.0, 0), (1.2, 1)])
def test_a_build_with_its_own_runs_passes_unless_it_is_slower(trial, tmp_path, slower, exit_code):
    main = planted(trial.original, slower=1.0, build="main")
    branch = planted(trial.arms["fast"], slower=slower, build="branch")
    assert main.records[0].measurements != branch.records[0].measurements
    found = run_gate(main, branch, metric="ttft", folder=tmp_path)
    assert found.exit_code == exit_code


def test_a_command_that_dies_is_no_regression(original, tmp_path):
    with pytest.raises(TurboLabError, match=r"no verdict \(exit code 1\).*There is no record"):
        run_gate(planted(original, slower=1.0), Arm("none", ()), metric="ttft", folder=tmp_path)


def test_what_cannot_be_told_has_not_passed(tmp_path):
    folder = tmp_path / "two"
    two = load(folder, made_trial(folder, restarts=2)).original
    main = planted(two, slower=1.0, build="main")
    run = run_gate(main, planted(two, slower=1.0), metric="ttft", folder=tmp_path / "gate")
    assert run.exit_code == 1 and run.lines[-1] == "gate: failed (cannot tell)"


def test_the_gate_has_a_smallest_regression_that_it_sees(original, tmp_path):
    steps = [1.0, 1.01, 1.1, 1.3]
    seen = smallest_seen(original, metric="throughput", steps=steps, folder=tmp_path)
    assert seen in (1.01, 1.1)
    assert smallest_seen(original, metric="throughput", steps=[1.0], folder=tmp_path) is None


def test_planting_keeps_the_scatter_and_scales_times_and_rates(original):
    slow = planted(original, slower=2.0)
    for before, after in zip(original.records, slow.records, strict=True):
        old, new = ({m.name: m.value for m in r.measurements} for r in (before, after))
        assert new["ttft_s"] == pytest.approx(2 * old["ttft_s"])
        assert new["output_rate_tok_s"] == pytest.approx(old["output_rate_tok_s"] / 2)
    for wrong in (0, -1.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="above 0"):
            planted(original, slower=wrong)


def test_a_written_arm_reads_back(original, tmp_path):
    again = load_arm(write_arm(original, tmp_path / "arm"))
    assert [r.measurements for r in again.records] == [r.measurements for r in original.records]
