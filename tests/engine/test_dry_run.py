"""The sources' commands before the installed vLLM's own parser, and its own check of vocabularies.

No server starts and no weights are read: config.json is enough for what is refused here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.source_commands import (
    DRAFT,
    SOURCE_COMMANDS,
    SPECULATIVE,
    Translated,
    ask_engine,
)
from turbo_lab.engines.vllm_dry_run import DryRun, check_args, dry_run, write_config
from turbo_lab.models.catalog import load_model
from turbo_lab.models.vocabulary import vocabularies_match

pytestmark = [pytest.mark.engine, pytest.mark.slow]
PAIR = ("qwen2.5-7b", "qwen2.5-1.5b")


@pytest.fixture(scope="module")
def translated() -> dict[str, Translated]:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    return {found.command.name: found for found in ask_engine()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of the source's pair, without weights."""
    pytest.importorskip("vllm", reason="needs the cpu environment")
    root = tmp_path_factory.mktemp("configs")
    return {name: write_config(root / name, config=dict(load_model(name).config)) for name in PAIR}


@pytest.fixture(scope="module")
def checked(models: dict[str, str]) -> dict[str, DryRun]:
    target, draft = (models[name] for name in PAIR)
    pairs = {
        "unequal": {"model": draft},
        "unequal, mapped": {"model": draft, "use_heterogeneous_vocab": True},
        "unequal, mapped and sampled": {
            "model": draft, "use_heterogeneous_vocab": True,
            "draft_sample_method": "probabilistic",
        },
        "equal": {"model": target},
        "n-gram": {"method": "ngram", "prompt_lookup_max": 4},
    }  # fmt: skip
    commands = [
        ("vllm", "serve", target, "--max-model-len", "2048", "--speculative-config",
         json.dumps({"num_speculative_tokens": 5, **more}))
        for more in pairs.values()
    ]  # fmt: skip
    return dict(zip(pairs, dry_run(commands, configure=True), strict=True))


def test_every_current_form_is_accepted(translated: dict[str, Translated]) -> None:
    assert set(translated) == {one.name for one in SOURCE_COMMANDS}
    refused = {name: t.current.message for name, t in translated.items() if not t.current.accepted}
    assert not refused


def test_the_old_forms_are_refused_for_the_reason_that_is_taught(
    translated: dict[str, Translated],
) -> None:
    old = translated["speculative"].source
    assert old.refused_by == "parser"
    assert "--speculative-model" in old.message and "--num-speculative-tokens" in old.message
    bench = translated["benchmark"].source
    assert bench.refused_by == "command" and "benchmark_serving" in bench.message
    assert translated["serve"].source.accepted


def test_the_parser_reads_what_was_meant(translated: dict[str, Translated]) -> None:
    assert translated["speculative"].current.given["speculative_config"] == SPECULATIVE
    short = translated["speculative, short"].current.given
    assert (short["spec_model"], short["spec_tokens"]) == (DRAFT, 5)
    assert translated["benchmark"].current.given["output_len"] == 128


def test_vllm_refuses_the_sources_pair(checked: dict[str, DryRun]) -> None:
    said = checked["unequal"]
    assert said.refused_by == "configuration"
    assert "same vocabulary size" in said.message
    ours = vocabularies_match(load_model(PAIR[0]).spec(), draft=load_model(PAIR[1]).spec())
    assert not ours and {str(ours.target_tokens), str(ours.draft_tokens)} <= {
        word.rstrip(".").split("=")[-1] for word in said.message.split()
    }


def test_vllm_takes_equal_sizes_and_lookups(checked: dict[str, DryRun]) -> None:
    assert checked["equal"].accepted and checked["n-gram"].accepted


def test_an_option_lifts_the_refusal_for_greedy_drafts(checked: dict[str, DryRun]) -> None:
    assert checked["unequal, mapped"].accepted
    assert "only supports greedy draft" in checked["unequal, mapped and sampled"].message


def test_arguments_of_a_server_can_be_checked(models: dict[str, str], tmp_path: Path) -> None:
    args = VllmArgs.make(
        model=models[PAIR[0]], speculative_config={"model": models[PAIR[1]],
                                                   "num_speculative_tokens": 5},
    )  # fmt: skip
    assert check_args(args).refused_by == "configuration"
