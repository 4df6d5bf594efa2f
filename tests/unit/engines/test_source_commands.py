"""The table of old and current commands, and the words put before the engine, without an engine."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.engines import source_commands as source
from turbo_lab.engines.vllm_dry_run import DryRun, _job, _module, _plain, write_config


def test_every_command_can_be_put_before_the_engine() -> None:
    kinds = [_job(one.current_words)["kind"] for one in source.SOURCE_COMMANDS]
    assert kinds == ["serve", "serve", "serve", "bench"]
    assert _job(source.SOURCE_COMMANDS[-1].source_words)["kind"] == "module"


def test_the_json_of_the_speculative_command_survives_the_shell() -> None:
    by_name = {one.name: one for one in source.SOURCE_COMMANDS}
    words = by_name["speculative"].current_words
    value = json.loads(words[words.index("--speculative-config") + 1])
    assert value == {"model": source.DRAFT, "num_speculative_tokens": 5}


def test_both_forms_keep_what_they_share() -> None:
    for one in source.SOURCE_COMMANDS:
        kept = {w for w in one.source_words if w in one.current_words}
        assert {source.TARGET, "qwen7b"} <= kept and one.change


def test_rows_show_the_engines_words() -> None:
    one = source.SOURCE_COMMANDS[1]
    found = source.Translated(
        one,
        DryRun(one.source_words, "parser", "unrecognized arguments: --speculative-model", {}),
        DryRun(one.current_words, None, "", {}),
    )
    (row,) = source.table([found])
    assert row["source's form"] == "refused: unrecognized arguments: --speculative-model"
    assert row["this vLLM"] == "accepted" and row["current form"] == one.current


@pytest.mark.parametrize("words", [("vllm", "bench"), ("rm", "-r"), (), ("python", "-m")])
def test_other_commands_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="known are 'vllm serve'"):
        _job(words)


def test_messages_lose_their_wrapping() -> None:
    wrapped = "1 validation error for X\n  Value error, Sizes differ. [type=value_error, input=1]"
    assert _plain(ValueError(wrapped)) == "Sizes differ."
    assert _plain(ValueError("vllm serve: error: unrecognized arguments: --x")) == (
        "unrecognized arguments: --x"
    )
    assert _module("json.tool") == "" and "No module named no_such.one" in _module("no_such.one")


def test_a_config_alone_makes_a_folder(tmp_path) -> None:
    folder = write_config(tmp_path / "model", config={"model_type": "qwen2"})
    assert json.loads((tmp_path / "model" / "config.json").read_text()) == {"model_type": "qwen2"}
    assert folder == str(tmp_path / "model")
