"""The command ``turbo-lab papers``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turbo_lab.cli.main import build_app
from turbo_lab.core.errors import UsageError
from turbo_lab.papers import store

HERE = Path(__file__).parent


def run(*arguments: str):
    return CliRunner().invoke(build_app("papers"), ["papers", *arguments])


def rows(*arguments: str):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_list_filters_by_axes_and_knows_its_words():
    assert len(rows("list")) == len(store.list_records())
    network = rows("list", "--resource", "network", "--stage", "decode")
    assert "turbo-sigcomm-2026" in [row["id"] for row in network]
    assert all("network" in row["resource"] for row in network)
    wrong = run("list", "--layer", "kernel")
    assert isinstance(wrong.exception, UsageError) and "runtime" in str(wrong.exception)


def test_show_gives_every_field_with_its_status():
    data = rows("show", "turbo-sigcomm-2026")
    assert data["statuses"]["authors"] == "unknown" and data["authors"] is None
    assert "核心问题" in run("show", "orca", "--lang", "zh").stdout
    assert isinstance(run("show", "orca", "--lang", "fr").exception, UsageError)


def test_audit_of_files_and_ids_and_strictness():
    trapped, clean = str(HERE / "trapped.yaml"), str(HERE / "clean.yaml")
    (found,) = rows("audit", trapped)
    assert "precision_dividend" in found["traps"] and "missing_gpu" in found["missing"]
    assert rows("audit", clean)[0]["remarks"] == []
    assert run("audit", trapped, "--strict").exit_code == 1
    assert run("audit", clean, "--strict").exit_code == 0
    assert len(rows("audit")) == len(store.list_records())


def test_search_fails_when_nothing_fits():
    assert run("search", "frobnicator").exit_code == 1
    assert "mooncake" in run("search", "mooncake").stdout


def test_new_writes_once_and_its_result_is_called_unfinished(tmp_path):
    out = tmp_path / "mine.yaml"
    assert run("new", "mine", "--title", 'A "paper"', "--out", str(out)).exit_code == 0
    assert isinstance(run("new", "mine", "--out", str(out)).exception, UsageError)
    assert isinstance(run("new", "My Paper").exception, UsageError)
    assert "unfinished" in rows("audit", str(out))[0]["traps"]


def test_new_makes_no_folder_by_surprise(tmp_path):
    told = run("new", "mine", "--out", str(tmp_path / "typo" / "mine.yaml")).exception
    assert isinstance(told, UsageError) and "there is no folder" in str(told)
    assert list(tmp_path.iterdir()) == []


def test_new_tells_in_json_what_it_wrote_and_where(tmp_path):
    out = tmp_path / "mine.yaml"
    done = json.loads(run("new", "mine", "--out", str(out), "--json").stdout)
    assert done == {"id": "mine", "yaml": out.read_text(encoding="utf-8"), "file": str(out)}
    assert json.loads(run("new", "mine", "--json").stdout)["file"] is None


def test_audit_tells_every_wrong_field_of_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("id: Mine\ntitle: x\n")
    told = str(run("audit", str(path)).exception)
    for field in ("id", "title", "axes", "problem", "claims", "transfer", "sources"):
        assert f"\n  {field}: " in told
    assert f"{told.count(chr(10))} things are wrong" in told and "more)" not in told
    path.write_text(run("new", "mine").stdout.replace("year: null", "year: 1200"))
    assert str(run("audit", str(path)).exception).startswith("mine.yaml: year: ")


@pytest.mark.parametrize("command", ["list", "search", "show", "new", "audit"])
def test_help_has_examples(command):
    assert "Examples" in run(command, "--help").stdout
