"""A trial: resumable runs, rows for a record, and verdicts that follow from the samples alone."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest

from turbo_lab.core.errors import EngineError, RecordError, UnmeasuredError, UsageError
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment import trial_verdict as verdicts
from turbo_lab.experiment.sweep import Launched
from turbo_lab.experiment.trial import (
    Candidate,
    candidate_plan,
    read_trial,
    run_trial,
    trial_plan,
    trial_rows,
)

from .conftest import quick_options, quick_plan, speech
from .trials import ANSWERS, CANDIDATES, FAST, load, made_trial, made_trial_plan, plan, rescale


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """fast is a fifth faster, slow a fifth slower than the original."""
    folder = tmp_path_factory.mktemp("trial")
    return folder, made_trial(folder, fast=0.8, slow=1.2)


def test_each_candidate_declares_its_own_setting_and_nothing_else():
    base, fast, slow = (candidate_plan(plan(), CANDIDATES, c.name).declared for c in CANDIDATES)
    assert set(base) == set(fast) == set(slow) == {"kv_cache_dtype", "speculative_config"}
    assert set(base.values()) == {None}
    assert fast == {**base, "kv_cache_dtype": "fp8"}
    assert slow == {**base, "speculative_config": CANDIDATES[2].value}


@pytest.mark.parametrize(
    ("more", "candidates", "message"),
    [
        ({}, CANDIDATES[1:], "the first candidate is the original"),
        ({}, (CANDIDATES[0], Candidate("x")), "declares the one setting"),
        ({"primary_metric": None}, CANDIDATES, "name the primary metric"),
    ],
)
def test_a_trial_that_would_prove_nothing_is_refused(more, candidates, message):
    with pytest.raises(UsageError, match=message):
        trial_plan(plan(**more), candidates=candidates, restarts=5)
    with pytest.raises(UsageError, match="asks the same in every run"):
        trial_plan(quick_plan(primary_metric="ttft"), candidates=CANDIDATES, restarts=5)


def test_verdicts_decisions_and_causes(made):
    trial = load(*made)
    fast, slow = verdicts.findings(trial, answers=ANSWERS)
    assert {m: c.verdict for m, c in fast.comparisons.items()} == dict.fromkeys(
        verdicts.METRICS, "better"
    )
    assert fast.primary.attributable and fast.primary.changed == (FAST.key,)
    assert fast.decision()[0] == "adopt"
    assert slow.primary.verdict == "worse" and slow.decision()[0] == "do not adopt"
    assert verdicts.ratio(trial, "fast", metric="tpot") == pytest.approx(0.8, rel=0.02)


def test_changing_a_sample_file_changes_the_verdict(made, tmp_path):
    folder, plan_ = tmp_path / "copy", made[1]
    shutil.copytree(made[0], folder)
    assert verdicts.findings(load(folder, plan_), answers=ANSWERS)[0].decision()[0] == "adopt"
    for restart in (1, 2, 3):
        rescale(folder / "arm-fast" / f"restart-{restart}" / "record.json", 0.8)
    found = verdicts.findings(load(folder, plan_), answers=ANSWERS)[0]
    assert found.primary.verdict == "no difference shown"
    assert found.decision() == ("do not adopt", "no gain is shown in the primary metric")
    for restart in (1, 2, 3, 4, 5):
        rescale(folder / "arm-fast" / f"restart-{restart}" / "record.json", 0.6)
    assert verdicts.findings(load(folder, plan_), answers=ANSWERS)[0].primary.verdict == "worse"


def test_the_noise_floor_is_the_originals_own_difference(made):
    trial = load(*made)
    own = verdicts.aa_difference(trial.original, metric="throughput")
    found = verdicts.compare_to_original(trial, "fast", metric="throughput")
    assert own is not None
    assert found.noise_floor == pytest.approx(max(abs(own.effect), (own.high - own.low) / 2))
    assert "1 A/A comparisons stored" in found.noise_source


def edited(made, change):
    rows = trial_rows(made[1], made[0])
    for row in rows:
        change(row)
    return read_trial(rows, CANDIDATES)


def test_the_metric_that_was_named_before_the_runs_decides(made):
    def name_ttft(row):
        row["record"]["variables"]["primary_metric"] = "ttft_s"

    found = verdicts.findings(edited(made, name_ttft), answers=ANSWERS)[0]
    assert found.primary.metric == "ttft_s.p50"
    assert [c.metric for c in found.comparisons.values()][1:] == ["output_rate_tok_s", "tpot_s.p50"]


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_metric_that_restarts_lack_gives_no_verdict_and_no_crash(made, kept):
    seen = []

    def drop_tpot(row):
        if row["arm"] == "original":
            seen.append(row)
            if len(seen) > kept:
                for found in row["record"]["measurements"]:
                    if found["name"] == "tpot_s":
                        found.update(samples=[], value=None, reason="one token a reply")

    trial = edited(made, drop_tpot)
    assert verdicts.aa_difference(trial.original, metric="tpot") is None
    found = verdicts.findings(trial, answers=ANSWERS)[0]
    assert found.comparisons["tpot"].verdict == ("cannot tell" if kept else "no data")
    assert found.primary.verdict == "better"


def test_the_tenth_restart_comes_after_the_second_and_runs_in_rounds_are_in_turns(made, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(made[0], folder)
    home = folder / "arm-original"
    shutil.move(home / "restart-2", home / "restart-10")
    before, after = (load(place, made[1]).original.records for place in (made[0], folder))
    assert [r.digest for r in after] == [before[i].digest for i in (0, 2, 3, 4, 1)]

    def date(row, minute):
        row["record"]["created_at"] = f"2026-01-01T00:{minute:02d}:00Z"

    for in_turns in (True, False):
        rows = trial_rows(made[1], made[0])
        for number, row in enumerate(rows):
            date(row, 3 * (number % 5) + number // 5 if in_turns else number)
        assert read_trial(rows, CANDIDATES).in_turns is in_turns


@pytest.mark.parametrize("restarts", [1, 2, 3])
def test_few_restarts_prove_nothing_however_large_the_gain(tmp_path, restarts):
    trial = load(tmp_path, made_trial(tmp_path, restarts=restarts, fast=0.5))
    found = verdicts.findings(trial, answers=ANSWERS)[0]
    assert found.decision() == ("not yet", "fewer than 5 starts a side")
    if restarts == 1:  # blocks of one run: the scatter of restarts is not in them, and it is said
        assert any("one server start a side" in text for text in found.primary.caveats)
        return
    assert found.primary.verdict == "cannot tell"
    assert any("needs at least 5" in reason for reason in found.primary.reasons)
    assert verdicts.aa_difference(trial.original, metric="ttft") is None


def replies(rows, name, texts):
    return [{**row, "texts": texts} if row["arm"] == name else row for row in rows]


def test_lost_answers_stop_a_faster_candidate(made):
    folder, plan_ = made
    rows = trial_rows(plan_, folder)
    wrong = read_trial(replies(rows, "fast", ["x"] * 30), CANDIDATES)
    found = verdicts.findings(wrong, answers=ANSWERS)[0]
    assert found.quality.own == 1.0 and found.quality.other == 0.0
    assert found.quality.ok is False and found.decision()[0] == "do not adopt"
    some = read_trial(replies(rows, "fast", ["x"] * 3 + ["a b c"] * 27), CANDIDATES)
    found = verdicts.findings(some, answers=ANSWERS)[0]
    assert found.quality.ok is None and found.decision()[0] == "not yet"


def test_equal_answers_to_few_questions_rule_no_loss_out(made):
    trial = load(*made)
    for questions, ok in ((verdicts.LEAST_QUESTIONS, True), (10, None), (4, None)):
        found = verdicts.findings(trial, answers=ANSWERS[:questions])[0]
        assert found.quality.ok is ok
        assert found.decision()[0] == ("adopt" if ok else "not yet")
    assert (1 - verdicts.QUALITY_MARGIN) ** verdicts.LEAST_QUESTIONS <= 0.05


def test_a_reply_that_is_missing_does_not_shift_the_others(made, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(made[0], folder)
    journal = next((folder / "arm-fast" / "restart-1").glob("*.jsonl"))
    lines = [x for x in journal.read_text().splitlines() if json.loads(x).get("index") != 3]
    journal.write_text("\n".join(lines) + "\n")
    first = next(row for row in trial_rows(made[1], folder) if row["arm"] == "fast")
    assert first["texts"] == ["a b c"] * 3 + [None] + ["a b c"] * 26


def test_a_gain_is_adopted_only_at_equal_service_that_is_known_and_no_higher_cost(made):
    good = verdicts.findings(load(*made), answers=ANSWERS)[0]
    assert replace(good, cost=(1.0, 0.8)).decision()[0] == "adopt"
    assert replace(good, cost=(1.0, 1.1)).decision() == (
        "not yet", "a token of the whole run costs more all the same"
    )  # fmt: skip
    decision, why = replace(good, service=(None, None)).decision()
    assert decision == "not yet" and "no objectives were declared" in why
    same = {"throughput": replace(good.primary, changed=(), attributable=False)}
    assert "no recorded setting differs" in replace(good, comparisons=same).decision()[1]


def test_late_replies_stop_it_too_and_more_than_one_change_leaves_the_cause_open(made):
    folder, plan_ = made
    trial = load(folder, plan_)
    good = verdicts.findings(trial, answers=ANSWERS)[0]
    late = verdicts.Finding(good.name, good.comparisons, good.quality, (1.0, 0.9), good.cost)
    assert late.decision() == ("do not adopt", "fewer requests are within the objectives")
    rows = trial_rows(plan_, folder)
    for row in rows:
        if row["arm"] == "fast":
            row["record"]["variables"]["log_level"] = "debug"
    found = verdicts.findings(read_trial(rows, CANDIDATES), answers=ANSWERS)[0]
    assert not found.primary.attributable
    assert found.decision() == ("not yet", "more than the declared setting differs")


def test_the_table_has_what_was_measured_and_nothing_in_place_of_what_was_not(made):
    rows = verdicts.table(load(*made))
    assert list(rows) == ["original", "fast", "slow"]
    assert rows["fast"]["TTFT P50 [ms]"] == pytest.approx(40, rel=0.03)
    assert rows["original"]["KV pool [tokens]"] is None and rows["original"]["restarts"] == 5
    assert rows["original"]["within objectives"] == 1.0


def test_an_arm_without_a_run_is_named(made):
    rows = [row for row in trial_rows(made[1], made[0]) if row["arm"] != "slow"]
    with pytest.raises(RecordError, match="no run of 'slow'"):
        read_trial(rows, CANDIDATES)


def launch_of(starts, *, fail=()):
    @contextmanager
    def launch(name):
        starts.append(name)
        if name in fail:
            raise EngineError(f"{name}: NotImplementedError: this format")
        with MockServer(speech()) as mock:
            yield Launched(mock.base_url, "mock")

    return launch


def test_a_trial_that_stopped_goes_on_and_repeats_nothing(tmp_path):
    trial, starts = made_trial_plan(restarts=1), []
    with pytest.raises(UnmeasuredError, match=r"no run of slow.*NotImplementedError"):
        run_trial(trial, launch=launch_of(starts, fail=("slow",)), out=tmp_path,
                  options=quick_options())  # fmt: skip
    assert starts == ["original", "fast", "slow"]
    rows = run_trial(trial, launch=launch_of(starts), out=tmp_path, options=quick_options())
    assert starts[3:] == ["slow"]
    assert [row["arm"] for row in rows] == ["original", "fast", "slow"]
    assert all(len(row["texts"]) == 30 and all(row["texts"]) for row in rows)
    prompts = {o["data"]["digest"] for row in rows for o in row["record"]["observations"]
               if o["name"] == "prompts"}  # fmt: skip
    assert len(prompts) == 1, "every arm was asked the same"
