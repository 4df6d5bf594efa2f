"""``turbo-lab sweep``: one variable over several values, with restarts, against the first."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from turbo_lab.experiment.sweep import Launch, SweepPlan, SweepResult


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("sweep")(sweep)


def sweep(
    target: Annotated[
        str, typer.Argument(help="A server's URL (for the load), or vllm (fresh servers).")
    ],
    vary: Annotated[
        str, typer.Option(metavar="KEY=V1,V2,...", help="The one variable and its values.")
    ],
    metric: Annotated[str, typer.Option(help="Named before the run: ttft, throughput ...")],
    restarts: Annotated[
        int, typer.Option(help="Runs per value: 1, or 5 and more; 2 to 4 are too few.")
    ] = 5,
    model: Annotated[str | None, typer.Option(help="Model name, or folder for vllm.")] = None,
    requests: Annotated[int, typer.Option(help="Measured requests per run.")] = 40,
    rate: Annotated[float | None, typer.Option(help="Open loop: requests per second.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Closed loop: users.")] = None,
    input_tokens: Annotated[int, typer.Option(help="Prompt length.")] = 128,
    output_tokens: Annotated[int, typer.Option(help="Reply length.")] = 64,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Fixed engine argument; repeatable."),
    ] = None,
    mode: Annotated[str, typer.Option(help="auto, cpu or gpu (for vllm).")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder; an unfinished sweep goes on.")] = None,
    calibrate: Annotated[bool, typer.Option(help="Measure the client's own error once.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Vary one setting, restart the server for each run in counterbalanced order, compare.

    The load (concurrency, rate, input_tokens, output_tokens) is varied on a
    running server, whose URL is given; settings of the server need the
    target vllm, which starts one for each run. The variable repeat changes
    nothing: its two values give the noise floor.

    Examples:\n
      turbo-lab sweep http://127.0.0.1:8000 --vary concurrency=1,2,4 --metric e2e\n
      turbo-lab sweep vllm --vary max_num_seqs=4,16 --metric throughput --concurrency 16\n
      turbo-lab sweep vllm --vary repeat=a,b --metric ttft --concurrency 2
    """
    from turbo_lab.experiment.plan import BenchPlan, parse_scalar
    from turbo_lab.experiment.sweep import CLIENT_KEYS, SweepPlan

    key, values = parse_vary(vary)
    if rate is None and concurrency is None:
        concurrency = 1
    fixed = {k: parse_scalar(v) for k, v in _pairs(set_).items()}
    plan = BenchPlan(
        model=model or "lab", requests=requests, rate_req_s=rate, concurrency=concurrency,
        input_tokens=input_tokens, output_tokens=output_tokens, primary_metric=metric,
        declared={k: v for k, v in fixed.items() if k not in CLIENT_KEYS},
    )  # fmt: skip
    _check_target(target, key)
    work = SweepPlan(key=key, values=values, plan=plan, restarts=restarts, metric=metric)
    launch, name = _launch(target, key, model=model, mode=mode, fixed=fixed)
    work = replace(work, plan=replace(plan, model=name))
    folder = out or Path("runs") / f"sweep-{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    result = execute(work, launch, folder, calibrate=calibrate, as_json=as_json)
    show(result, as_json=as_json)


def _pairs(words: list[str] | None) -> dict[str, str]:
    from turbo_lab.experiment.plan import parse_pairs

    return parse_pairs(words or [], option="--set")


def parse_vary(text: str) -> tuple[str, tuple[Any, ...]]:
    """``key=v1,v2`` to its parts. Raises UsageError."""
    from turbo_lab.core.errors import UsageError
    from turbo_lab.experiment.plan import parse_pairs, parse_scalar

    if "=" not in text:
        raise UsageError(f"--vary {text!r} gives no values. Write for example {text}=1,2,4")
    ((key, values),) = parse_pairs([text], option="--vary").items()
    return key, tuple(parse_scalar(v.strip()) for v in values.split(",") if v.strip())


def _check_target(target: str, key: str) -> None:
    """Refuse what is neither a URL nor ``vllm``, and settings that a running server has for good.

    Raises UsageError.
    """
    from turbo_lab.core.errors import UsageError, did_you_mean
    from turbo_lab.experiment.sweep import CLIENT_KEYS, REPEAT

    if target == "vllm":
        return
    if "://" not in target:
        raise UsageError(f"target is {target!r}. Give a server's URL (http://HOST:PORT) or vllm")
    allowed = [*CLIENT_KEYS, REPEAT]
    if key not in allowed:
        raise UsageError(
            f"{key!r} is no setting of the load but one of the server: only a sweep of `vllm` can "
            f"restart it. With a URL vary one of the load.{did_you_mean(key, allowed)}"
        )


def _launch(
    target: str, key: str, *, model: str | None, mode: str, fixed: dict[str, Any]
) -> tuple[Launch, str]:
    from turbo_lab.cli.bench import only_model
    from turbo_lab.experiment.launch import fresh_vllm, running
    from turbo_lab.experiment.sweep import CLIENT_KEYS, REPEAT

    if target == "vllm":
        from turbo_lab.core.config import resolve_dials

        plain = key in CLIENT_KEYS or key == REPEAT
        dials = resolve_dials(mode)
        return fresh_vllm(dials, key=None if plain else key, model=model, **fixed), "lab"
    name = model or only_model(target)
    return running(target, model=name), name


def execute(
    work: SweepPlan, launch: Launch, folder: Path, *, calibrate: bool, as_json: bool,
    question: str = "",
) -> SweepResult:  # fmt: skip
    """Run the sweep with progress and write its page."""
    from rich.console import Console

    from turbo_lab.experiment.bench import Options
    from turbo_lab.experiment.progress import choose_progress
    from turbo_lab.experiment.sweep import run_sweep
    from turbo_lab.records.store import write_text_atomically
    from turbo_lab.report.sweep import render_sweep

    progress = choose_progress(Console(stderr=as_json))
    options = Options(calibrate=calibrate, progress=progress)
    try:
        result = run_sweep(work, launch=launch, out=folder, options=options)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; go on with the same command and --out {folder}", err=True)
        raise typer.Exit(130) from None
    write_text_atomically(render_sweep(result, question=question), folder / "report.html")
    return result


def show(result: SweepResult, *, as_json: bool) -> None:
    """Print the result; exit code 1 when nothing was measured."""
    from turbo_lab.experiment.sweep import to_dict
    from turbo_lab.report import sweep as page
    from turbo_lab.report.comparison_text import comparison_to_json

    if as_json:
        compared = [comparison_to_json(c) for c in result.comparisons]
        data = {**to_dict(result), "rows": page.sweep_rows(result), "comparisons": compared,
                "report": str(result.folder / "report.html")}  # fmt: skip
        typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        for row in page.sweep_rows(result):
            typer.echo(f"{result.sweep.key}={row['value']}: {result.sweep.metric} {row['median']} "
                       f"({row['runs']} runs: {row['all']})")  # fmt: skip
        for line in page.summary_lines(result):
            typer.echo(line)
        typer.echo(f"Report: {result.folder / 'report.html'}")
    raise typer.Exit(0 if result.arms else 1)
