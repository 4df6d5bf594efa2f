"""``turbo-lab simulate calibrate``: measure the step times of a live server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turbo_lab.cli.simulate.shared import AsJson

if TYPE_CHECKING:
    from turbo_lab.sim.calibration import Calibration


def calibrate(
    url: Annotated[str, typer.Argument(help="Root of a vLLM server that serves nothing else.")],
    name: Annotated[str, typer.Option(help="What the calibration is called.")] = "measured",
    out: Annotated[Path | None, typer.Option(help="File to write (default: NAME.json).")] = None,
    rounds: Annotated[int, typer.Option(help="How often all loads are sent.")] = 2,
    widest: Annotated[int | None, typer.Option(help="Most users at once.")] = None,
    max_batched_tokens: Annotated[
        int | None, typer.Option(help="Token budget, where the server does not tell.")
    ] = None,
    max_sequences: Annotated[
        int | None, typer.Option(help="Most running requests, where the server does not tell.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the prompts.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure step time against prompt tokens, decoding sequences and context; write a calibration.

    One crowd size is held out and foretold; its error is in the file.

    Examples:\n
      turbo-lab simulate calibrate http://127.0.0.1:8000 --name mine --out mine.json\n
      turbo-lab simulate run --trace conv.csv --calibration mine.json
    """
    from turbo_lab.core.errors import UsageError
    from turbo_lab.sim.calibration_run import calibrate as measure

    path = out or Path(f"{name}.json")
    if not path.parent.is_dir():  # before minutes of measuring, not after
        raise UsageError(f"--out {path}: there is no folder {path.parent}; make it first")
    found = measure(
        url, name=name, rounds=rounds, widest=widest, max_batched_tokens=max_batched_tokens,
        max_sequences=max_sequences, seed=seed,
        on_load=lambda load, done: typer.echo(f"{done} {load}", err=True),
    )  # fmt: skip
    found.write(path)
    typer.echo(json.dumps(found.to_dict(), indent=1) if as_json else calibration_text(found, path))


def calibration_text(found: Calibration, path: Path) -> str:
    """What was measured, in a few lines."""
    lines = [
        f"{found.name}: {found.source}",
        f"step = {found.fixed_s * 1e3:.4g} ms + {found.prefill_token_s * 1e6:.4g} us/prompt token "
        f"+ {found.prefill_context_s * 1e9:.4g} ns/query-key pair + decode(B) "
        f"+ {found.context_token_s * 1e9:.4g} ns/cached token",
        f"decode(B): {found.decode_s(1) * 1e3:.4g} ms for 1, "
        f"{found.decode_s(found.max_sequences) * 1e3:.4g} ms for {found.max_sequences}; "
        f"beside the engine {found.request_s * 1e3:.4g} ms a request",
        f"{found.blocks} blocks of {found.block_tokens} tokens, {found.max_batched_tokens} tokens "
        f"a step, {found.max_sequences} sequences",
    ]
    if held_out := found.evidence.get("held_out"):
        lines.append(f"held out: {json.dumps(held_out)}")
    lines.append(f"written to {path}")
    return "\n".join(lines)
