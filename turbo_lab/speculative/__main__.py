"""``python -m turbo_lab.speculative``: show, assemble or build the draft of the bundled model."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from turbo_lab.core.errors import TurboLabError, UsageError

app = typer.Typer(
    name="python -m turbo_lab.speculative", no_args_is_help=True, add_completion=False,
    pretty_exceptions_enable=False, help=__doc__,
)  # fmt: skip
Folder = Annotated[Path | None, typer.Option(help="Folder of a packed draft (default: ours).")]


@app.command()
def show(
    source: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print recipe.json.")] = False,
) -> None:
    """What the draft is, how it was made, and how often it is right."""
    from turbo_lab.speculative.draft import open_pack

    packed = open_pack(source)
    if as_json:
        typer.echo(json.dumps(packed.recipe, indent=1))
        return
    recipe = packed.recipe
    weights, data = recipe["weights"], recipe["data"]
    layers = ", ".join(map(str, recipe["recipe"]["train"]["layers"]))
    minutes = sum(recipe["minutes"].values())
    typer.echo(f"teacher    {recipe['teacher']['name']}, layers {layers} as start")
    typer.echo(f"weights    {weights['parameters']:,} in {weights['bytes']:,} bytes")
    typer.echo(f"data       {data['tokens']:,} tokens by the teacher, {data['digest'][:19]}")
    typer.echo(f"made       in {minutes:.1f} minutes on {recipe['made_with']['cpu']}")
    for kind, found in recipe["agreement"].items():
        interval = f"[{found['low']:.1%}, {found['high']:.1%}]"
        typer.echo(f"agreement  {kind:<6} {found['share']:.1%} {interval}")


@app.command()
def assemble(source: Folder = None) -> None:
    """Write the draft as a Hugging Face folder into the cache and print its path."""
    from turbo_lab.speculative.draft import assemble_draft

    typer.echo(assemble_draft(source, report=_say))


@app.command()
def build(
    out: Annotated[Path, typer.Option(help="Folder for weights and recipe.")] = Path("runs/draft"),
    option: Annotated[
        list[str] | None, typer.Option("-r", "--recipe", help="NAME=VALUE of the recipe.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop training after this time.")] = None,
) -> None:
    """Distil a draft on this machine (about half an hour on two cores with bfloat16).

    Ctrl-C stops it; the same command goes on where it was.

    Examples:\n
      python -m turbo_lab.speculative build\n
      python -m turbo_lab.speculative build -r seed=1 -r rounds=4 -r epochs=2 --out runs/small
    """
    from turbo_lab.speculative.draft import DraftRecipe
    from turbo_lab.speculative.draft_build import build_draft

    recipe = DraftRecipe.make(**dict(_pair(text) for text in option or ()))
    started = time.monotonic()
    try:
        packed = build_draft(recipe, out, minutes=minutes, report=_say)
    except KeyboardInterrupt:
        _say("\nStopped. The same command goes on where it was.")
        raise typer.Exit(130) from None
    elapsed = (time.monotonic() - started) / 60
    _say(f"{packed.share:.1%} held-out greedy agreement, {elapsed:.1f} minutes")
    typer.echo(packed.folder)


def _pair(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        raise UsageError(
            f"recipe option is {text!r}; wanted is NAME=VALUE with a number, e.g. rounds=4"
        ) from None


def _say(text: str) -> None:
    typer.echo(text, err=True)


def main(arguments: list[str] | None = None) -> None:
    """Run and exit: 0 fine, 1 failed, 2 wrong use, 130 stopped by the user."""
    try:
        app(arguments, prog_name=app.info.name)
    except TurboLabError as error:
        typer.secho(str(error), fg="red", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
