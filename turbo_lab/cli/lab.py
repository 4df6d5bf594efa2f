"""``turbo-lab lab``: JupyterLab in the notebooks folder."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated, NoReturn

import typer

from turbo_lab.core import host
from turbo_lab.core.errors import MissingDependencyError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    extra = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command("lab", context_settings=extra)(lab)


def lab(
    context: typer.Context,
    mode: Annotated[
        str | None, typer.Option(help="auto, replay, cpu or gpu, for all notebooks opened there")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
) -> None:
    """Open JupyterLab with the notebooks. Further options go to JupyterLab itself.

    Examples:\n
      turbo-lab lab\n
      turbo-lab lab --mode replay\n
      turbo-lab lab --no-browser --port 8890
    """
    if not host.has_module("jupyterlab"):
        raise MissingDependencyError("jupyterlab", needed_for="turbo-lab lab", kind="replay")
    become(lab_command(browser=browser, extra=context.args), lab_environment(mode))


def become(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Go on as this command, with its exit code.

    No process waits above it: JupyterLab gets Ctrl-C and a polite kill itself, asks before it ends
    and ends its kernels. A waiting parent would kill it a moment after Ctrl-C, or leave it behind.
    """
    if sys.platform == "win32":  # there the shell would not wait for the new process
        raise typer.Exit(subprocess.call(command, env=environment))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], command, environment)


def lab_command(*, browser: bool, extra: list[str]) -> list[str]:
    """The command line of JupyterLab, in this very environment."""
    from turbo_lab.course.manifest import load_manifest

    folder = load_manifest().folder
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}"]
    return [*command, *([] if browser else ["--no-browser"]), *extra]


def lab_environment(mode: str | None) -> dict[str, str]:
    """Environment of the server; ``mode`` is checked here, before anything starts."""
    from turbo_lab.core.config import MODE_VARIABLE, resolve_dials

    environment = dict(os.environ)
    if mode is not None:
        environment.pop(MODE_VARIABLE, None)
        os.environ.pop(MODE_VARIABLE, None)
        resolve_dials(mode)
        environment[MODE_VARIABLE] = mode
    return environment
