"""Searches, their resumption, and the command line."""

from __future__ import annotations

import importlib.util
import json

import pytest
from typer.testing import CliRunner

from turbo_lab.cli.main import build_app
from turbo_lab.core.errors import MissingDependencyError, RecordError, UsageError
from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.engine import Engine
from turbo_lab.sim.search import search
from turbo_lab.sim.tasks import run_tasks
from turbo_lab.workload.trace_reader import TraceFile

CALIBRATION = Calibration(
    name="test", source="invented", fixed_s=0.01, prefill_token_s=1e-4, prefill_context_s=0.0,
    decode_sequence_s=1e-3, context_token_s=1e-6, request_s=0.001, blocks=200, block_tokens=16,
    max_batched_tokens=256, max_sequences=8,
)  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    rows = ["arrival_s,prompt_tokens,output_tokens", *(f"{0.02 * i},{64},{20}" for i in range(200))]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(rows) + "\n")
    CALIBRATION.write(tmp_path / "cal.json")
    return path


def square(task):
    """A task's row."""
    return {"square": task["number"] ** 2}


def explode(task):
    """A task that dies at 3."""
    if task["number"] == 3:
        raise UsageError("three")
    return square(task)


NUMBERS = {str(n): {"number": n} for n in range(6)}


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path):
    journal = tmp_path / "rows.jsonl"
    with pytest.raises(UsageError, match="three"):
        run_tasks(explode, NUMBERS, journal=journal, about={"a": 1}, workers=1)
    assert len(journal.read_text().splitlines()) == 4  # header, 0, 1, 2
    done = []

    def counted(task):
        done.append(task["number"])
        return square(task)

    with journal.open("a") as file:
        file.write('{"kind":"row","key":"5","ro')  # cut off by a crash
    rows = run_tasks(counted, NUMBERS, journal=journal, about={"a": 1}, workers=1)
    assert done == [3, 4, 5]
    assert [rows[str(n)]["square"] for n in range(6)] == [0, 1, 4, 9, 16, 25]


def test_a_journal_of_another_sweep_is_refused(tmp_path):
    journal = tmp_path / "rows.jsonl"
    run_tasks(square, NUMBERS, journal=journal, about={"speed": 1}, workers=1)
    with pytest.raises(UsageError, match="another speed"):
        run_tasks(square, NUMBERS, journal=journal, about={"speed": 2}, workers=1)
    journal.write_text('{"kind":"row"}\n')
    with pytest.raises(RecordError, match="no journal"):
        run_tasks(square, NUMBERS, journal=journal, workers=1)


def test_backends_are_named_and_a_missing_ray_says_how_to_get_it():
    with pytest.raises(UsageError, match="local, ray"):
        run_tasks(square, NUMBERS, backend="dask")
    if importlib.util.find_spec("ray") is None:
        with pytest.raises(MissingDependencyError, match="ray is not installed"):
            run_tasks(square, NUMBERS, backend="ray")


def test_processes_give_the_rows_of_one_process():
    assert run_tasks(square, NUMBERS, workers=2) == run_tasks(square, NUMBERS, workers=1)


def test_the_search_finds_the_fewest_replicas_that_meet_the_slo(trace, tmp_path):
    options = {"replicas": [1, 2, 3, 4], "max_sequences": [2, 8]}
    found = search(TraceFile(trace), Engine(CALIBRATION), options=options, slo={"ttft": 0.2},
                   folder=tmp_path / "out", workers=1)  # fmt: skip
    assert found.best is not None and len(found.rows) == 8
    cheaper = [r for r in found.rows if r["replica_s"] < found.best["replica_s"]]
    assert cheaper and not any(row["meets"] for row in cheaper)
    assert found.best["slo_attainment"] >= 0.99 > max(r["slo_attainment"] for r in cheaper)


def run(*words):
    """Exit code and output of the command line."""
    result = CliRunner().invoke(build_app("simulate"), ["simulate", *map(str, words)])
    if isinstance(result.exception, UsageError):
        raise result.exception
    return result.exit_code, result.output


def test_run_prints_the_promised_keys(trace, tmp_path):
    given = ("--trace", trace, "--calibration", tmp_path / "cal.json")
    code, out = run("run", *given, "--replicas", 2, "--router", "least-requests", "--slo",
                    "ttft=0.2,tpot=0.1", "--json")  # fmt: skip
    facts = json.loads(out)
    assert code == 0 and facts["requests"] == facts["completed"] == 200
    assert facts["slo"] == {"ttft": 0.2, "tpot": 0.1} and 0 <= facts["slo_attainment"] <= 1
    for name in ("wall_s", "requests_per_s", "throughput_tok_s", "preemptions"):
        assert facts[name] is not None
    assert facts["prefix_hit_rate"] is None and facts["prefix_hit_note"].startswith("unmeasured")
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert {"p50", "p90", "p95", "p99", "mean"} <= set(facts[name])
    _, text = run("run", *given)
    assert "TTFT" in text and "requests/s" in text


def test_energy_and_money_come_with_their_source_or_the_reason(trace, tmp_path):
    given = ("--trace", trace, "--calibration", tmp_path / "cal.json", "--replicas", 2, "--json")
    facts = json.loads(run("run", *given)[1])
    assert facts["energy_per_request_j"] is None and "--accelerator" in facts["energy_note"]
    assert facts["cost_per_request"] is None and "--price-per-hour" in facts["cost_note"]
    power = ("--accelerator", "h100-sxm5-80gb", "--devices", 2)
    facts = json.loads(run("run", *given, *power, "--price-per-hour", 7.2)[1])
    assert facts["power"]["busy_w"] == 1400 and "data sheet" in facts["power"]["source"]
    low, high = facts["energy_range_per_request_j"]
    assert facts["energy_per_request_j"] is None and "--idle-w" in facts["energy_note"]
    assert facts["cost_per_request"] == pytest.approx(facts["replica_s"] * 0.002 / 200)
    facts = json.loads(run("run", *given, *power, "--idle-w", 100)[1])
    assert low < facts["energy_per_request_j"] < high
    _, text = run("run", *given[:-1], *power, "--idle-w", 100)
    assert "energy" in text and "J a request" in text


def test_a_search_tells_energy_and_money_of_every_row(trace, tmp_path):
    _, out = run("search", "--trace", trace, "--calibration", tmp_path / "cal.json", "--slo",
                 "ttft=9", "--replicas", "1,3", "--workers", 1, "--busy-w", 300, "--idle-w", 60,
                 "--price-per-hour", 2, "--json")  # fmt: skip
    one, three = sorted(json.loads(out)["rows"], key=lambda row: row["replicas"])
    assert three["energy_per_request_j"] > one["energy_per_request_j"] > 0
    assert three["cost_per_request"] > one["cost_per_request"] > 0


def test_a_faster_replay_waits_longer(trace, tmp_path):
    waits = []
    for speed in (1, 4):
        _, out = run("run", "--trace", trace, "--calibration", tmp_path / "cal.json", "--speed",
                     speed, "--json")  # fmt: skip
        waits.append(json.loads(out)["ttft_s"]["p99"])
    assert waits[1] > 1.2 * waits[0]


def test_the_search_command_answers_with_its_exit_code(trace, tmp_path):
    cal = ("--trace", trace, "--calibration", tmp_path / "cal.json", "--workers", 1)
    code, out = run("search", *cal, "--slo", "ttft=0.2", "--replicas", "1,4", "--json",
                    "--price-per-hour", 2)  # fmt: skip
    facts = json.loads(out)
    assert code == 0 and facts["best"]["replicas"] == 4 and facts["best"]["cost"] > 0
    code, out = run("search", *cal, "--slo", "ttft=1e-6", "--replicas", "1")
    assert code == 1 and "none meets" in out


@pytest.mark.parametrize(("words", "message"), [
    (["--router", "nearest"], "round-robin"), (["--policy", "lifo"], "fcfs"),
    (["--slo", "ttft"], "NAME=VALUE"), (["--slo", "itl=1"], "itl"),
    (["--slo", "ttft=x"], "seconds"), (["--replicas", "0"], "1 to 10,000"),
    (["--speed", "0"], "above 0"), (["--blocks", "0"], "blocks"),
    (["--calibration", "no-such"], "no-such"), (["--format", "xml"], "xml"),
])  # fmt: skip
def test_wrong_use_names_what_is_allowed(trace, tmp_path, words, message):
    given = [] if "--calibration" in words else ["--calibration", tmp_path / "cal.json"]
    with pytest.raises(UsageError, match=message):
        run("run", "--trace", trace, *given, *words)
