"""Drawn traces have the published shape; files that are no traces are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.workload.arrivals import gap_cv, rate_per_s
from turbo_lab.workload.traces import (
    TraceRow,
    azure_conversation,
    bundled_trace,
    draw_trace,
    read_trace,
    write_trace,
)

PUBLIC = repository_root().parent / "shared/traces/AzureLLMInferenceTrace_conv.csv"
PUBLISHED = {  # statistics of the public file, kept beside the shape that is drawn from it
    "prompt_tokens": {"mean": 1154.7, 50: 1020, 90: 2734.5, 99: 4142},
    "output_tokens": {"mean": 211.1, 50: 129, 90: 424, 99: 601},
}


@pytest.fixture(scope="module")
def drawn() -> list[TraceRow]:
    return draw_trace(azure_conversation(), count=600, seed=2023)


def test_the_bundled_trace_is_the_drawn_one(drawn: list[TraceRow]) -> None:
    assert bundled_trace("chat") == drawn


@pytest.mark.parametrize("name", PUBLISHED)
def test_lengths_have_the_published_marginals(drawn: list[TraceRow], name: str) -> None:
    values = np.array([getattr(row, name) for row in drawn])
    told = dict(PUBLISHED[name])
    assert values.mean() == pytest.approx(told.pop("mean"), rel=0.02)
    for percent, tokens in told.items():
        assert np.percentile(values, percent) == pytest.approx(tokens, rel=0.02)


def test_arrivals_have_the_published_rate_and_gaps() -> None:
    times = [r.arrival_s for r in draw_trace(azure_conversation(), count=20_000, seed=1)]
    assert rate_per_s(times) == pytest.approx(5.53, rel=0.03)
    assert gap_cv(times) == pytest.approx(1.09, rel=0.05)


def test_prompt_and_reply_are_independent(drawn: list[TraceRow]) -> None:
    pairs = np.array([(r.prompt_tokens, r.output_tokens) for r in drawn])
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.12


def test_another_seed_is_another_trace_of_the_same_lengths(drawn: list[TraceRow]) -> None:
    other = draw_trace(azure_conversation(), count=600, seed=7)
    assert other != drawn
    assert sorted(r.prompt_tokens for r in other) == sorted(r.prompt_tokens for r in drawn)


def test_written_and_read_again(tmp_path: Path, drawn: list[TraceRow]) -> None:
    write_trace(tmp_path / "t.csv", drawn)
    assert read_trace(tmp_path / "t.csv") == drawn


def test_the_public_format_is_read(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    first, second = read_trace(path)
    assert (first.arrival_s, first.prompt_tokens, first.output_tokens) == (0.0, 374, 44)
    assert second.arrival_s == pytest.approx(4.314579, abs=1e-5)


@pytest.mark.skipif(not PUBLIC.exists(), reason="the public trace is not on this machine")
def test_the_shape_is_that_of_the_public_file() -> None:
    rows = read_trace(PUBLIC)
    shape = azure_conversation()
    for marginal, values in (
        (shape.prompt, [r.prompt_tokens for r in rows]),
        (shape.output, [r.output_tokens for r in rows]),
    ):
        for percent, tokens in marginal.points:
            assert np.percentile(values, percent) == pytest.approx(tokens, abs=1.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n1,2\n", "columns"),
        ("arrival_s,prompt_tokens,output_tokens\n0,x,1\n", "line 2"),
        ("arrival_s,prompt_tokens,output_tokens\n0,5\n", "line 2"),
        (
            "arrival_s,prompt_tokens,output_tokens\n0,0,1\n",
            "is '0'; allowed: a whole number from 1",
        ),
        ("arrival_s,prompt_tokens,output_tokens\n", "no requests"),
        ("", "is empty"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=reason):
        read_trace(path)


def test_unknown_trace_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="allowed: .*chat"):
        bundled_trace("nothing")
