"""Entry point of ``turbo-lab``. Each command lives in a file of its own and is loaded when asked.

A command file exposes ``register(app)`` and imports nothing heavy at its top, so that
``turbo-lab --help`` answers at once in every environment.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Annotated

import typer

from turbo_lab.core import host
from turbo_lab.core.errors import TurboLabError

# The order of the help page. A file that does not exist yet is skipped.
COMMANDS = (
    "run", "lab", "course", "study", "estimate", "serve", "bench", "sweep", "compare", "verify",
    "import", "collectives", "simulate", "papers", "doctor", "env", "workshop",
)  # fmt: skip
DEBUG_VARIABLE = "TURBO_LAB_DEBUG"
NEXT_STEPS = {
    errno.ENOSPC: "Free some space there, or name another folder",
    errno.EDQUOT: "Free some space there, or name another folder",
    errno.EACCES: "Correct the rights there, or name another path",
    errno.EROFS: "Nothing can be written there; name another path",
    errno.EMFILE: "Raise the limit of open files: ulimit -n 65536",
}


def module_name(command: str) -> str:
    """Module of a command; a Python keyword gets a trailing underscore."""
    return f"turbo_lab.cli.{command}{'_' if command == 'import' else ''}"


def build_app(only: str | None = None) -> typer.Typer:
    """The application with one command (when ``only`` names one) or with all."""
    app = typer.Typer(
        name="turbo-lab",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        help="Predict, measure, compare: a course and reproducibility kit for LLM inference.\n\n"
        "Examples:  turbo-lab run 00   |   turbo-lab run --mode replay   |   turbo-lab env --json",
    )
    app.callback()(_globals)
    for command in [only] if only in COMMANDS else COMMANDS:
        if host.has_module(module_name(command)):
            importlib.import_module(module_name(command)).register(app)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"turbo-lab {host.package_version('turbo-lab') or 'not installed'}")
        raise typer.Exit


def _globals(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 fine, 1 the check failed, 2 wrong use, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    named = next((word for word in arguments if not word.startswith("-")), None)
    try:
        build_app(named)(arguments, prog_name="turbo-lab")
    except TurboLabError as error:
        if os.environ.get(DEBUG_VARIABLE) or "--debug" in arguments:
            raise
        _print_error(error)
        sys.exit(error.exit_code)
    except OSError as error:  # What the system refuses anywhere: a full disk, a private folder.
        if os.environ.get(DEBUG_VARIABLE) or "--debug" in arguments:
            raise
        step = NEXT_STEPS.get(error.errno or 0, "--debug shows where it happened")
        _print_error(f"{error}. {step}.")
        sys.exit(1)


def _print_error(error: TurboLabError | str) -> None:
    """One line on standard error, red in a terminal."""
    from rich.console import Console
    from rich.text import Text

    text = Text(f"turbo-lab: {error}", style="red")
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)


if __name__ == "__main__":
    main()
