"""The commands of the course's sources beside their current form, to be put before the engine.

The first source article was written for an older vLLM. ``table`` shows what the installed one says
to both forms; nothing is started.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.engines.vllm_dry_run import DryRun, dry_run

TARGET, DRAFT = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"
SPECULATIVE = {"model": DRAFT, "num_speculative_tokens": 5}


@dataclass(frozen=True)
class SourceCommand:
    """One command. ``source``: as the article prints it; ``current``: the same for vLLM 0.32."""

    name: str
    source: str
    current: str
    change: str

    @property
    def source_words(self) -> tuple[str, ...]:
        """The article's command as words."""
        return tuple(shlex.split(self.source))

    @property
    def current_words(self) -> tuple[str, ...]:
        """The current command as words."""
        return tuple(shlex.split(self.current))


_NAMED = f"vllm serve {TARGET} --served-model-name qwen7b"
_LOAD = "--request-rate 10 --num-prompts 200"
_BENCH = f"--backend vllm --model {TARGET} --served-model-name qwen7b --endpoint /v1/completions"

SOURCE_COMMANDS: tuple[SourceCommand, ...] = (
    SourceCommand(
        "serve",
        f"{_NAMED} --max-model-len 8192 --tensor-parallel-size 1 --gpu-memory-utilization 0.9",
        f"{_NAMED} --max-model-len 8192 --tensor-parallel-size 1 --gpu-memory-utilization 0.9",
        "unchanged",
    ),
    SourceCommand(
        "speculative",
        f"{_NAMED} --speculative-model {DRAFT} --num-speculative-tokens 5 --max-model-len 8192",
        f"{_NAMED} --speculative-config '{json.dumps(SPECULATIVE)}' --max-model-len 8192",
        "the flags became keys of one JSON value",
    ),
    SourceCommand(
        "speculative, short",
        f"{_NAMED} --speculative-model {DRAFT} --num-speculative-tokens 5 --max-model-len 8192",
        f"{_NAMED} --spec-model {DRAFT} --spec-tokens 5 --max-model-len 8192",
        "short flags for the two commonest keys",
    ),
    SourceCommand(
        "benchmark",
        f"python -m vllm.benchmarks.benchmark_serving {_BENCH} {_LOAD} --max-tokens 128",
        f"vllm bench serve {_BENCH} {_LOAD} --output-len 128",
        "the module became a subcommand, and the data set sets the reply's length",
    ),
)


@dataclass(frozen=True)
class Translated:
    """A command with what the installed vLLM says to its two forms."""

    command: SourceCommand
    source: DryRun
    current: DryRun


def ask_engine(commands: Sequence[SourceCommand] = SOURCE_COMMANDS) -> tuple[Translated, ...]:
    """Put both forms of every command before the installed vLLM's own parser (ten seconds).

    Raises MissingDependencyError where vLLM is not installed, EngineError when it dies.
    """
    words = [w for one in commands for w in (one.source_words, one.current_words)]
    said = dry_run(words)
    return tuple(Translated(one, said[2 * at], said[2 * at + 1]) for at, one in enumerate(commands))


def table(found: Sequence[Translated]) -> list[dict[str, Any]]:
    """Rows to show: name, what is said to the source's form, the current form, and to that."""
    return [
        {
            "command": one.command.name,
            "source's form": _verdict(one.source),
            "current form": one.command.current,
            "this vLLM": _verdict(one.current),
            "change": one.command.change,
        }
        for one in found
    ]


def _verdict(said: DryRun) -> str:
    return "accepted" if said.accepted else f"refused: {said.message}"
