"""Traces on the command line: listing, refusing, drawing."""

from __future__ import annotations

import json

import pytest

from turbo_lab.cli.main import main
from turbo_lab.workload.trace_reader import read_requests


def run(capsys: pytest.CaptureFixture, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["simulate", *words])
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err


def test_sources_are_listed_with_licence_and_checksum(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(capsys, "fetch", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["burstgpt-1"]["licence"] == "CC-BY-4.0"
    assert found["azure-2024-code"]["checksum_from"] == "unknown"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["fetch", "azure-2024-code"], "--trust-first"),
        (["fetch", "azure-2023-cod"], "Did you mean"),
        (["generate", "azure-2023", "--out", "x.jsonl"], "no trace model"),
        (["generate", "azure-2023-code", "--count", "0", "--out", "x.jsonl"], "count is 0"),
    ],
)
def test_wrong_use_is_told(capsys, tmp_path, monkeypatch, words, reason) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURBO_LAB_CACHE", str(tmp_path))
    code, out, err = run(capsys, *words)
    assert code == 2 and reason in out + err


def test_a_drawn_trace_is_counted_by_stats(capsys, tmp_path) -> None:
    path = tmp_path / "drawn.jsonl"
    words = ("generate", "mooncake-conversation", "--count", "800", "--rate", "9", "--json")
    code, out, _ = run(capsys, *words, "--out", str(path))
    assert code == 0 and json.loads(out)["requests"] == 800
    assert len(list(read_requests(path))) == 800
    code, out, _ = run(capsys, "stats", str(path), "--json")
    found = json.loads(out)
    assert found["requests"] == 800 and 0.1 < found["ideal_prefix_hit_rate"] < 0.5
