"""Values that a command cannot mean are wrong use, told before any work begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from turbo_lab.cli.main import build_app
from turbo_lab.core.errors import EngineError


def refused(*arguments: str) -> str:
    """The message of a command that must end as wrong use."""
    error = CliRunner().invoke(build_app(arguments[0]), list(arguments)).exception
    assert getattr(error, "exit_code", None) == 2, repr(error)
    return str(error)


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--threads", "0"), "--threads 0; allowed: 1 or more"),
     (("--deadline-s", "0"), "--deadline-s 0.0"),
     (("--deadline-s", "-1"), "--deadline-s -1.0"),
     (("--deadline-s", "nan"), "--deadline-s nan"),
     (("--hosts", "paced"), "--link 1gbit")],
)  # fmt: skip
def test_collectives_refuses_what_it_cannot_run(options: tuple[str, ...], said: str) -> None:
    assert said in refused("collectives", *options)


def test_calibrate_refuses_before_it_measures(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "none" / "c.json")
    said = refused("simulate", "calibrate", "http://127.0.0.1:9", "--out", nowhere)
    assert "there is no folder" in said


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "https://127.0.0.1:9"])
def test_calibrate_tells_an_impossible_address(url: str, tmp_path: Path) -> None:
    path = str(tmp_path / "c.json")
    done = CliRunner().invoke(
        build_app("simulate"), ["simulate", "calibrate", url, "--out", path]
    )  # fmt: skip
    assert isinstance(done.exception, EngineError)
    assert "http://HOST:PORT" in str(done.exception)


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--replicas", "100000"), "100000 replicas; allowed: 1 to 10,000"),
     (("--accelerator", "h100"), "accelerator is 'h100'"),
     (("--idle-w", "5"), "--busy-w or --accelerator"),
     (("--busy-w", "5", "--idle-w", "6"), "idle_w is 6.0; allowed: 0 to busy_w"),
     (("--busy-w", "-5"), "busy_w is -5.0"),
     (("--busy-w", "5", "--devices", "0"), "0 devices"),
     (("--price-per-hour", "nan"), "--price-per-hour nan")],
)  # fmt: skip
def test_simulate_refuses_fleets_and_powers_that_cannot_be(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,8,2\n")
    assert said in refused("simulate", "run", "--trace", str(trace), *options)


@pytest.mark.parametrize("late", ["1e16", "1e300"])
def test_times_in_a_wrong_unit_are_told(late: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n0,8,2\n{late},8,2\n")
    said = refused("simulate", "run", "--trace", str(trace))
    assert "request 1 arrives at" in said and "in seconds?" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--workers", "0"), "--workers 0; allowed: 1 or more"),
     (("--price-per-hour", "-1"), "--price-per-hour -1.0"),
     (("--price-per-hour", "nan"), "--price-per-hour nan"),
     (("--replicas", ","), "--replicas is ','"),
     (("--router", " ,"), "at least one value"),
     (("--limit", "-1"), "limit is -1; allowed: 1 or more")],
)  # fmt: skip
def test_search_refuses_what_it_cannot_try(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,8,2\n")
    assert said in refused(
        "simulate", "search", "--trace", str(trace), "--slo", "ttft=9", *options
    )  # fmt: skip


@pytest.mark.parametrize("option", ["--memory-gib", "--kv-cache-gib"])
@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1"])
def test_estimate_refuses_a_memory_that_is_none(option: str, value: str) -> None:
    said = refused("estimate", "qwen3-8b", "--max-len", "1024", option, value)
    assert said.startswith(f"{option} is ")


def test_bench_refuses_an_impossible_address() -> None:
    said = refused("bench", "http://127.0.0.1:99999", "--concurrency", "1", "--model", "m")
    assert "PORT from 1 to 65535" in said
