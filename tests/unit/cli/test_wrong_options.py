"""Values that a command cannot mean are wrong use, told before any work begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from turbo_lab.cli.main import build_app


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
