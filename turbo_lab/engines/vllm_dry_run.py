"""What the installed vLLM says to a command before it loads anything: its parser and its checks.

vLLM builds and checks its whole configuration from the command line and the models' config.json.
So a flag that is gone or a draft of another vocabulary can be seen refused without weights.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines import vllm_cli
from turbo_lab.engines.args import VllmArgs

Stage = Literal["command", "parser", "configuration"]
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class DryRun:
    """The engine's answer to one command line.

    ``refused_by``: ``command`` (no such subcommand or module), ``parser`` (flags and values),
    ``configuration`` (the models and settings do not go together); None when it was accepted.
    ``message``: vLLM's own words. ``given``: the parsed values that were on the command line.
    """

    command: tuple[str, ...]
    refused_by: Stage | None
    message: str
    given: dict[str, Any]

    @property
    def accepted(self) -> bool:
        """True when nothing was refused."""
        return self.refused_by is None


def dry_run(
    commands: Sequence[Sequence[str]], *, configure: bool = False, env: dict[str, str] | None = None
) -> tuple[DryRun, ...]:
    """Put commands before the installed vLLM, all in one process (imports take ten seconds).

    Args:
        commands: each as words, ``("vllm", "serve", ...)`` or ``("vllm", "bench", "serve", ...)``;
            a ``("python", "-m", "vllm. ...", ...)`` is refused when there is no such module.
        configure: also let vLLM build its configuration, for ``vllm serve``. Models must be folders
            (or already downloaded), of which only config.json is read.
        env: further environment variables.

    Raises:
        UsageError: another command.
        MissingDependencyError: vLLM is not installed.
        EngineError: the process died, with its last lines.
    """
    jobs = [_job(words) for words in commands]
    vllm_cli.vllm_version()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "turbo_lab.engines.vllm_dry_run"],
            input=json.dumps({"jobs": jobs, "configure": configure}),
            capture_output=True, text=True, timeout=TIMEOUT_S,
            env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1",
                 "HF_HUB_OFFLINE": "1", **(env or {})},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"vLLM gave no answer within {TIMEOUT_S:g} s") from error
    lines = [line for line in done.stdout.splitlines() if line.startswith('[{"refused_by"')]
    if done.returncode or not lines:
        raise EngineError(f"vLLM could not be asked:\n{done.stderr[-1500:]}")
    answers = json.loads(lines[-1])
    return tuple(
        DryRun(tuple(words), **answer) for words, answer in zip(commands, answers, strict=True)
    )


def check_args(args: VllmArgs) -> DryRun:
    """Let vLLM check a server's arguments and build their configuration, without starting it."""
    words = ("vllm", "serve", args.model, *args.flags())
    return dry_run([words], configure=True, env=args.environment())[0]


def write_config(folder: str | Path, *, config: dict[str, Any]) -> str:
    """A model folder that holds nothing but config.json: enough for ``configure``. Its path."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def _job(words: Sequence[str]) -> dict[str, Any]:
    """Subcommand and its words, told apart here so that a wrong use costs no ten seconds."""
    if tuple(words[:2]) == ("vllm", "serve"):
        return {"kind": "serve", "words": list(words[2:])}
    if tuple(words[:3]) == ("vllm", "bench", "serve"):
        return {"kind": "bench", "words": list(words[3:])}
    if tuple(words[:2]) == ("python", "-m") and len(words) > 2:
        return {"kind": "module", "words": list(words[2:])}
    raise UsageError(
        f"the command begins with {' '.join(words[:3])!r}; known are 'vllm serve', "
        "'vllm bench serve' and 'python -m MODULE'"
    )


def _answer(job: dict[str, Any], *, configure: bool) -> dict[str, Any]:
    """In the child: one command before vLLM's own code."""
    refused: Stage | None = None
    message, given = "", {}
    try:
        if job["kind"] == "module":
            refused = "command"
            message = _module(job["words"][0])
            refused = refused if message else None
        else:
            refused = "parser"
            parser = vllm_cli.build_parser(job["kind"])
            parsed = _parse(parser, job["words"])
            given = {k: v for k, v in vars(parsed).items() if v != parser.get_default(k)}
            if configure and job["kind"] == "serve":
                refused = "configuration"
                _configure(parsed)
            refused = None
    except Exception as error:  # whatever vLLM raises is its answer
        message = _plain(error)
    return {"refused_by": refused, "message": message, "given": json.loads(_dumps(given))}


def _module(name: str) -> str:
    """Why ``python -m name`` cannot run; empty when the module exists."""
    import importlib.util

    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    return "" if found else f"No module named {name}"


def _parse(parser: Any, words: list[str]) -> Any:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parser.parse_args(words)
    except SystemExit as error:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        raise ValueError(lines[-1] if lines else f"exit code {error.code}") from error


def _configure(parsed: Any) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    if getattr(parsed, "model_tag", None) is not None:
        parsed.model = parsed.model_tag
    AsyncEngineArgs.from_cli_args(parsed).create_engine_config()


def _plain(error: Exception) -> str:
    """The message without what pydantic wraps around it."""
    text = str(error)
    if "Value error, " in text:
        text = text.split("Value error, ", 1)[1].split(" [type=", 1)[0]
    return text.split(": error: ", 1)[-1].strip()


def _dumps(value: Any) -> str:
    return json.dumps(value, default=str)


def _main() -> None:
    asked = json.loads(sys.stdin.read())
    vllm_cli.answer_for_vllm()
    with contextlib.redirect_stdout(sys.stderr):
        found = [_answer(job, configure=asked["configure"]) for job in asked["jobs"]]
    print(_dumps(found))


if __name__ == "__main__":
    _main()
