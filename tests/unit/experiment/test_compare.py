"""Verdicts on runs against the mock, and on made-up records."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.errors import RecordError, TurboLabError, UsageError
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.experiment import noise, settings
from turbo_lab.experiment.arms import Arm, load_arm
from turbo_lab.experiment.compare import compare
from turbo_lab.records.digest import seal
from turbo_lab.records.schema import EngineFacts
from turbo_lab.report.comparison_text import comparison_lines, comparison_to_json

from .conftest import made_run, speech


@pytest.fixture
def judge(tmp_path):
    def run(a, b, *, declared="speed", metric="ttft", **more):
        return compare(a, b, declared=declared, metric=metric, folder=tmp_path / "noise", **more)

    return run


def arm(run) -> Arm:
    return load_arm(run.folder)


def made(base, *, values=None, name="x", **changes) -> Arm:
    """An arm out of a real record with other values or settings."""
    record = base.record
    if values is not None:
        rows = [
            m.model_copy(update={"samples": tuple(values), "value": sorted(values)[2]})
            if m.name == "ttft_s" else m for m in record.measurements
        ]  # fmt: skip
        record = record.model_copy(update={"measurements": tuple(rows)})
    return Arm(name, (seal(record.model_copy(update=changes)),))


def with_engine(base, command=(), config=None, name="x") -> Arm:
    facts = EngineFacts(name="vllm", version="0.32.0", model="m", model_sha256=None,
                        command=tuple(command), effective_config=config or {})  # fmt: skip
    return made(base, engines=(facts,), name=name)


def test_a_against_a_shows_no_difference_and_becomes_the_noise_floor(runs, judge, tmp_path):
    found = judge(arm(runs["a"]), arm(runs["again"]))
    assert found.verdict == "no difference shown"
    assert found.changed == () and found.attributable is False
    assert found.stored and list((tmp_path / "noise").glob("*.json"))
    again = judge(arm(runs["a"]), arm(runs["again"]))
    assert "1 A/A comparisons stored" in again.noise_source, "the same pair counts once"


@pytest.mark.parametrize("metric", ["ttft", "tpot", "e2e.mean", "throughput"])
def test_a_server_slowed_by_20_percent_is_worse_because_of_the_declared_setting(
    runs, judge, metric
):
    found = judge(arm(runs["a"]), arm(runs["slow"]), metric=metric)
    assert found.verdict == "worse" and found.attributable, comparison_lines(found)
    assert found.changed == ("speed",)
    sign = 1 if found.lower_is_better else -1
    assert 0.12 < sign * found.effect < 0.28
    assert any("because speed changed from 1.0 to 1.2" in x for x in comparison_lines(found))
    back = judge(arm(runs["slow"]), arm(runs["a"]), metric=metric)
    assert back.verdict == "better"


@pytest.mark.alone
def test_on_a_real_mock(bench_mock, tmp_path, judge):
    """Measured with a real clock. Other work on the machine adds to either side: three tries."""
    for attempt in range(3):
        made = [
            bench_mock(tmp_path / f"{attempt}{name}", waiting(slower), declared={"speed": slower})
            for name, slower in (("a", 1.0), ("b", 1.0), ("c", 1.2))
        ]
        same = judge(arm(made[0]), arm(made[1]), store=False)
        slow = judge(arm(made[0]), arm(made[2]), store=False)
        if (same.verdict, slow.verdict) == ("no difference shown", "worse"):
            assert slow.attributable and 0.1 < slow.effect < 0.3
            return
    pytest.fail(f"{comparison_lines(same)} {comparison_lines(slow)}")


def waiting(slower: float) -> Script:
    return Script(replies=(Reply(speech=Speech(ttft_s=0.3 * slower, gap_s=0.0)),))


def test_two_settings_changed_withholds_because(runs, judge):
    found = judge(arm(runs["a"]), arm(runs["two"]))
    assert found.verdict == "worse" and not found.attributable
    assert set(found.changed) == {"speed", "log_level"}
    text = "\n".join(comparison_lines(found))
    assert "because" not in text and "besides speed also log_level differ" in text


def test_an_undeclared_change_withholds_because(runs, judge):
    found = judge(arm(runs["a"]), arm(runs["slow"]), declared=None)
    assert found.verdict == "worse" and not found.attributable
    assert "no variable was declared" in "\n".join(comparison_lines(found))


def test_a_difference_without_any_recorded_change_has_no_cause_and_is_no_noise_floor(
    runs, judge, tmp_path
):
    base = runs["a"].record
    variables = {k: v for k, v in base.variables.items() if k != "speed"}
    left = made(runs["a"], name="a", variables=variables)
    found = judge(left, arm(runs["silent"]), declared="cooling")
    assert found.verdict == "worse" and not found.attributable
    assert "'cooling' is recorded in neither run" in found.caveats[0]
    assert not (tmp_path / "noise").exists()


VLLM = ("vllm", "serve", "/models/x", "--port", "8000", "--max-num-seqs", "16", "--dtype",
        "float32", "--enforce-eager")  # fmt: skip


@pytest.mark.parametrize(
    ("command", "config", "named"),
    [
        (("--max-num-seqs", "8"), {}, "max_num_seqs"),
        (("--dtype=bfloat16",), {}, "dtype"),
        (("--uvicorn-log-level", "debug"), {}, "uvicorn_log_level"),
        ((), {"environment": {"VLLM_LOGGING_LEVEL": "DEBUG"}}, "env.VLLM_LOGGING_LEVEL"),
        ((), {"vllm_config": {"model_config": {"dtype": "bf16"}}},
         "config.vllm_config.model_config.dtype"),
        (("--dtype=bfloat16",), {"vllm_config": {"model_config": {"dtype": "bf16"}}}, "dtype"),
    ],
)  # fmt: skip
def test_what_changed_beside_the_declared_setting_is_named(runs, judge, command, config, named):
    left = with_engine(runs["a"], (*VLLM, "--block-size", "16"), name="a")
    right = with_engine(runs["slow"], (*VLLM[:4], "9999", *VLLM[5:], "--block-size", "32",
                                       *command), config)  # fmt: skip
    found = judge(left, right, declared="block_size")
    assert set(found.changed) == {"block_size", "speed", named}
    assert not found.attributable


def test_every_place_that_shows_the_declared_setting_counts_as_one(runs, judge):
    left = with_engine(runs["a"], ("vllm", "--dtype", "float32"),
                       {"vllm_config": {"model_config": {"dtype": "float32"}},
                        "cache_config": {"num_gpu_blocks": "100"}}, name="a")  # fmt: skip
    right = with_engine(runs["a"], ("vllm", "--dtype", "bf16"),
                        {"vllm_config": {"model_config": {"dtype": "bf16"}},
                         "cache_config": {"num_gpu_blocks": "200"}})  # fmt: skip
    assert judge(left, right, declared="dtype").changed == ("dtype",)


def test_declared_consequences_do_not_withhold(runs, judge):
    left = with_engine(runs["a"], ("x", "--speculative-config", "a"), {"draft": 1}, name="a")
    right = with_engine(runs["a"], ("x", "--speculative-config", "b"), {"draft": 2})
    found = judge(left, right, declared="speculative_config", follows=["draft"])
    assert found.changed == ("speculative_config",) and found.follows == ("config.draft",)


def test_all_failed_is_no_data_never_zero(judge, runs, bench_mock, tmp_path):
    script = Script(replies=(Reply(status=500, match="r0"), *speech().replies))
    run = bench_mock(tmp_path / "dead", script, requests=6)
    found = judge(arm(runs["a"]), arm(run), declared="requests")
    assert found.verdict == "no data"
    assert found.effect is None and found.interval is None
    assert found.values[0] > 0 and found.values[1] is None


def test_failures_block_a_verdict(judge, runs, bench_mock, tmp_path):
    script = Script(replies=(Reply(status=503, match="r00001"), *speech(1.2).replies))
    run = bench_mock(tmp_path / "f", script, declared={"speed": 1.2})
    found = judge(arm(runs["a"]), arm(run))
    assert found.verdict == "cannot tell" and not found.attributable
    assert "gate 'failures' failed" in found.reasons[0]


def test_too_few_samples_cannot_tell(runs, judge):
    found = judge(made(runs["a"], values=[1.0] * 4), made(runs["slow"], values=[2.0] * 4, name="y"))
    assert found.verdict in ("cannot tell", "no data")


def test_restarts_are_the_samples_where_there_are_several(runs, judge):
    def restarts(base, values, name):
        records = []
        for index, value in enumerate(values):
            one = made(base, values=[value] * 30).records[0]
            rows = tuple(
                o.model_copy(update={"data": {"server_start": f"{name}{index}"}})
                if o.name == "target" else o for o in one.observations
            )  # fmt: skip
            records.append(seal(one.model_copy(update={"observations": rows})))
        return Arm(name, tuple(records))

    a = restarts(runs["a"], [1.0, 1.01, 0.99, 1.02, 1.0], "a")
    five = judge(a, restarts(runs["slow"], [1.2, 1.21, 1.19, 1.22, 1.2], "b"))
    assert five.verdict == "worse" and five.samples[0].unit == "restarts"
    assert five.noise_floor < 0.02, "the scatter of the restarts themselves"
    three = judge(a, restarts(runs["slow"], [2.0, 2.1, 2.2], "c"))
    assert three.verdict == "cannot tell" and "3 samples (restarts)" in three.reasons[0]
    near = judge(a, restarts(runs["slow"], [1.01, 1.02, 0.98, 1.03, 1.0], "d"))
    assert near.verdict == "no difference shown"


def test_an_arm_of_mixed_configurations_is_refused(runs, judge):
    mixed = Arm("mixed", (runs["slow"].record, runs["two"].record))
    with pytest.raises(RecordError, match="not repeats of one configuration: log_level differ"):
        judge(mixed, arm(runs["a"]))


def test_unlike_definitions_are_not_put_side_by_side(runs, judge):
    rows = tuple(
        m.model_copy(update={"definition": "TTFT included"}) if m.name == "tpot_s" else m
        for m in runs["slow"].record.measurements
    )
    with pytest.raises(TurboLabError, match="different things"):
        judge(arm(runs["a"]), made(runs["slow"], measurements=rows), metric="tpot")


def test_a_high_noise_floor_swallows_a_difference(runs, tmp_path):
    a, b = arm(runs["a"]), arm(runs["slow"])
    key = noise.floor_key(a.records[0], metric="ttft_s.p50", unit="blocks of one run")
    noise.store_run(key, effect=0.4, interval=(0.3, 0.5), digests=["x", "y"], facts={},
                    folder=tmp_path)  # fmt: skip
    found = compare(a, b, declared="speed", metric="ttft", folder=tmp_path)
    assert found.noise_floor == 0.4 and found.verdict == "no difference shown"


def test_wrong_names_are_refused(runs, judge):
    with pytest.raises(UsageError, match="Did you mean"):
        judge(arm(runs["a"]), arm(runs["slow"]), metric="tftt")
    with pytest.raises(RecordError, match="no record at"):
        load_arm("/nowhere")


def test_goodput_needs_the_same_objectives(runs, judge):
    latency = judge(arm(runs["a"]), arm(runs["slow"]), metric="ttft")
    assert "slo.ttft" not in latency.changed
    found = judge(arm(runs["a"]), arm(runs["slow"]), metric="goodput")
    assert found.verdict == "no data" and "no objective" in " ".join(found.reasons)


def test_flags_of_a_command():
    flags = settings.command_flags(
        ["vllm", "serve", "m", "--max-num-seqs", "16", "--dtype=bf16", "--enforce-eager",
         "--no-enable-prefix-caching", "--lora", "a", "--lora", "b", "--last"]
    )  # fmt: skip
    assert flags == {"max_num_seqs": "16", "dtype": "bf16", "enforce_eager": True,
                     "enable_prefix_caching": False, "lora": ["a", "b"], "last": True}  # fmt: skip


def test_one_run_on_both_sides_and_uncertified_percentiles_are_said(runs, judge):
    found = judge(arm(runs["a"]), arm(runs["a"]), declared=None, metric="ttft.p99")
    assert found.stored is None and "A and B share a run" in found.caveats[0]
    assert "A: 30 requests do not certify p99, 662 would" in found.caveats


def test_what_is_no_record_is_told_with_the_next_step(runs, tmp_path):
    with pytest.raises(RecordError, match=r"does not exist\. Give record\.json"):
        load_arm(tmp_path / "nowhere")
    with pytest.raises(RecordError, match="it holds none"):
        load_arm(tmp_path)
    (tmp_path / "page.html").write_text("<p>")
    with pytest.raises(RecordError, match=r"not whole JSON.* Give record\.json"):
        load_arm(tmp_path / "page.html")
    (tmp_path / "requests.jsonl").write_text("{}")
    with pytest.raises(RecordError, match="cut off.*--resume --out"):
        load_arm(tmp_path)


def test_a_warning_of_several_runs_is_one_sentence(runs, judge, tmp_path):
    again = [made_run(tmp_path / str(i), seed=i, requests=9) for i in range(5)]
    side = Arm("five", tuple(run.record for run in again))
    found = judge(side, arm(runs["a"]), declared=None)
    (text,) = [t for t in found.caveats if t.startswith("A: samples")]
    assert text.startswith("A: samples: 9 successful") and text.endswith("(5 of 5 runs)")


def test_a_median_of_zero_has_no_relative_difference(runs, judge):
    found = judge(made(runs["a"], values=[0.0] * 10), made(runs["slow"], values=[1.0] * 10))
    assert found.verdict == "cannot tell" and found.effect is None
    assert "median of A is 0" in found.reasons[0]
    json.loads(json.dumps(comparison_to_json(found), allow_nan=False))


def test_another_setting_than_the_declared_one_is_no_equal_pair(runs, judge):
    found = judge(arm(runs["a"]), arm(runs["slow"]), declared="requests")
    assert found.verdict == "worse" and not found.attributable
    text = "\n".join(comparison_lines(found))
    assert "requests does not differ, but speed does" in text and "A/A" not in found.caveats[0]
