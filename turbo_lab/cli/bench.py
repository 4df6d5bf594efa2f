"""``turbo-lab bench``: measure any OpenAI-compatible server."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from turbo_lab.experiment.bench import BenchRun, Options
    from turbo_lab.experiment.plan import BenchPlan

INTERRUPTED = 130

# The options of the command, one name each.
Url = Annotated[str, typer.Argument(help="Root of the server, with or without /v1.")]
Model = Annotated[
    str | None, typer.Option(help="Name in the requests (default: the server's only model).")
]
Requests = Annotated[int, typer.Option(help="Measured requests.")]
Rate = Annotated[float | None, typer.Option(help="Open loop: requests per second.")]
Concurrency = Annotated[
    int | None, typer.Option(help="Closed loop: users who wait for their reply.")
]
Arrivals = Annotated[str, typer.Option(help="poisson, constant or gamma:SHAPE (with --rate).")]
InputTokens = Annotated[int, typer.Option(help="Prompt length.")]
OutputTokens = Annotated[int, typer.Option(help="Reply length.")]
Kind = Annotated[
    str, typer.Option("--workload", help="random, shared-prefix, multi-turn or tenants.")
]
PrefixTokens = Annotated[
    int | None, typer.Option(help="shared-prefix: common beginning (default: half the input).")
]
Prefixes = Annotated[
    int | None, typer.Option(help="shared-prefix: how many beginnings there are (default: 1).")
]
Turns = Annotated[int | None, typer.Option(help="multi-turn: turns each (default: 4).")]
Think = Annotated[
    float | None, typer.Option(help="multi-turn: seconds between a reply and the next turn.")
]
TENANT = "NAME:share=3,input=512,output=64,prefix=256"
Tenants = Annotated[
    list[str] | None,
    typer.Option("--tenant", metavar=TENANT, help="tenants: one of them; repeatable."),
]
Trace = Annotated[
    Path | None, typer.Option(help="CSV or JSONL file with arrivals and lengths (not --rate).")
]
TraceLongest = Annotated[
    int | None, typer.Option(help="Leave out rows with more tokens of prompt and reply.")
]
TraceSpeed = Annotated[float, typer.Option(help="Replay the trace so many times as fast.")]
Retries = Annotated[
    int, typer.Option(help="Send a refused request (429, 503, no connection) so often again.")
]
Slo = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=S", help="Objective in seconds: ttft=0.25; repeatable."),
]
Primary = Annotated[
    str | None, typer.Option(help="Metric that later comparisons will use, e.g. ttft.p95.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Note a server setting; repeatable."),
]
Endpoint = Annotated[str, typer.Option(help="chat or completions.")]
Seed = Annotated[int, typer.Option(help="Schedule and prompts.")]
PromptSalt = Annotated[
    int, typer.Option(help="Same prompts as a run with this salt; 0 draws a new one.")
]
Tokenizer = Annotated[str | None, typer.Option(help="Model folder, for exact prompt lengths.")]
Warmup = Annotated[int, typer.Option(help="Requests before the measurement.")]
Timeout = Annotated[float, typer.Option(help="Seconds for one request.")]
Out = Annotated[Path | None, typer.Option(help="Folder (default: runs/bench-<time>).")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in --out where it stopped.")
]
Calibrate = Annotated[bool, typer.Option(help="Measure the client's own error first (about 3 s).")]
PricePerHour = Annotated[
    float | None, typer.Option(help="Price of the server, for the cost per million tokens.")
]
SampleEvery = Annotated[float, typer.Option(help="Seconds between resource samples.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON; progress on stderr.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("bench")(bench)


def bench(
    url: Url, model: Model = None, requests: Requests = 100,
    rate: Rate = None, concurrency: Concurrency = None, arrivals: Arrivals = "poisson",
    input_tokens: InputTokens = 128, output_tokens: OutputTokens = 64,
    workload: Kind = "random", prefix_tokens: PrefixTokens = None,
    prefixes: Prefixes = None, turns: Turns = None, think: Think = None,
    tenant: Tenants = None, trace: Trace = None, trace_longest: TraceLongest = None,
    trace_speed: TraceSpeed = 1.0, slo: Slo = None, primary: Primary = None, set_: Set = None,
    endpoint: Endpoint = "chat", retries: Retries = 0, seed: Seed = 0, prompt_salt: PromptSalt = 0,
    tokenizer: Tokenizer = None, warmup: Warmup = 4, timeout: Timeout = 120.0,
    out: Out = None, resume: Resume = False, calibrate: Calibrate = True,
    price_per_hour: PricePerHour = None, sample_every: SampleEvery = 0.5, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Measure a server: latencies, rates, objectives, resources; record and report in --out.

    Exit code: 0 measured, 1 no data or ended early, 2 wrong use. The API
    key is read from the environment variable TURBO_LAB_API_KEY. A turn of
    a conversation is one request; --rate is of conversations. A trace has
    columns arrival_s,prompt_tokens,output_tokens (CSV or JSON lines), or
    is one of Azure's or Mooncake's.

    Examples:\n
      turbo-lab bench http://127.0.0.1:8000 --rate 4 --requests 200\n
      turbo-lab bench http://127.0.0.1:8000 --concurrency 8 --slo ttft=0.25 --slo tpot=0.05\n
      turbo-lab bench http://127.0.0.1:8000 --rate 2 --set dtype=bfloat16 --out runs/bf16\n
      turbo-lab bench http://127.0.0.1:8000 --rate 1 --workload multi-turn --turns 5 --think 2\n
      turbo-lab bench http://127.0.0.1:8000 --rate 4 --workload shared-prefix --prefixes 8\n
      turbo-lab bench http://127.0.0.1:8000 --rate 4 --workload tenants --tenant a --tenant b\n
      turbo-lab bench http://127.0.0.1:8000 --trace data/traces/chat.csv --trace-longest 2000
    """
    from turbo_lab.experiment.plan import BenchPlan
    from turbo_lab.experiment.workload_words import make_workload

    _sigterm_interrupts()
    objectives, declared = _named_values(slo, set_)
    plan = BenchPlan(
        model=model or only_model(url), requests=requests, rate_req_s=rate,
        concurrency=concurrency, arrivals=arrivals, input_tokens=input_tokens,
        output_tokens=output_tokens, endpoint=endpoint, seed=seed, prompt_salt=prompt_salt,
        slo=objectives, primary_metric=primary, warmup=warmup, timeout_s=timeout,
        tokenizer=tokenizer, declared=declared, retries=retries,
        workload=make_workload(
            workload, requests=requests, input_tokens=input_tokens, prefix_tokens=prefix_tokens,
            prefixes=prefixes, turns=turns, think=think, tenants=tenant, trace=trace,
            trace_longest=trace_longest, trace_speed=trace_speed,
        ),
    )  # fmt: skip
    chosen = {"resume": resume, "calibrate": calibrate, "sample_every_s": sample_every,
              "price_per_hour": price_per_hour}  # fmt: skip
    _measure_and_show(url, plan, out or default_folder(resume), chosen, as_json=as_json)


def _measure_and_show(
    url: str, plan: BenchPlan, folder: Path, chosen: dict[str, Any], *, as_json: bool
) -> None:
    from rich.console import Console

    console = Console(stderr=as_json)
    run = _run(url, plan, folder, _options(console, **chosen))
    finish(run, write_report(run), console=console, as_json=as_json)


def _named_values(
    slo: list[str] | None, settings: list[str] | None
) -> tuple[dict[str, float], dict[str, Any]]:
    """Objectives in seconds, and declared settings with their types."""
    from turbo_lab.experiment.plan import parse_pairs, parse_scalar

    objectives = {k: _seconds(v) for k, v in parse_pairs(slo or [], option="--slo").items()}
    declared = parse_pairs(settings or [], option="--set")
    return objectives, {k: parse_scalar(v) for k, v in declared.items()}


def default_folder(resume: bool) -> Path:
    """``runs/bench-<local time>``. Raises UsageError where --resume needs a folder."""
    from turbo_lab.core import host
    from turbo_lab.core.errors import UsageError

    if resume:
        raise UsageError("--resume needs the folder of the run: --out DIR")
    return host.repository_root() / "runs" / f"bench-{time.strftime('%Y-%m-%d_%H-%M-%S')}"


def only_model(url: str) -> str:
    """The model that the server names. Raises UsageError when it names none or several."""
    from turbo_lab.client.stream import Target
    from turbo_lab.core.errors import EngineError, UsageError
    from turbo_lab.experiment import ask

    target = Target(url)
    answer = ask.get_json(target, "/v1/models")
    rows = answer.get("data") if isinstance(answer, dict) else None
    names = [r["id"] for r in rows or [] if isinstance(r, dict) and r.get("id")]
    if len(names) == 1:
        return str(names[0])
    if not names and not ask.reachable(target):
        raise EngineError(f"nothing listens at {url}. Start the server, or correct the address.")
    found = f"it names {', '.join(names)}" if names else "it lists no model at /v1/models"
    raise UsageError(f"give --model NAME: the server at {url} answers, and {found}")


def _seconds(text: str) -> float:
    from turbo_lab.core.errors import UsageError

    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--slo takes seconds, e.g. ttft=0.25; got {text!r}") from None


def _sigterm_interrupts() -> None:
    """A polite kill or a closed terminal ends the run like Ctrl-C: the record is written."""
    import signal

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP, and nohup ignores it.
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def _options(console: Console, **chosen: Any) -> Options:
    from turbo_lab.experiment.bench import Options
    from turbo_lab.experiment.progress import choose_progress

    command = ("turbo-lab", *sys.argv[1:])
    return Options(command=command, progress=choose_progress(console), **chosen)


def _run(url: str, plan: BenchPlan, folder: Path, options: Options) -> BenchRun:
    from turbo_lab.experiment.bench import run_bench

    try:
        return run_bench(url, plan=plan, out=folder, options=options)
    except KeyboardInterrupt:
        typer.echo(
            f"interrupted before there was a record; what was measured, if anything, is kept in "
            f"{folder} (--resume --out {folder} goes on)", err=True,
        )  # fmt: skip
        raise typer.Exit(INTERRUPTED) from None


def write_report(run: BenchRun) -> Path | None:
    """The HTML report beside the record; None, with a word on stderr, when it cannot be written."""
    from turbo_lab.core.errors import TurboLabError
    from turbo_lab.experiment.run_folder import REPORT_NAME
    from turbo_lab.records.store import write_text_atomically
    from turbo_lab.report.bench import render_run

    try:
        page = render_run(run.record, run.evidence.timelines)
        return write_text_atomically(page, run.folder / REPORT_NAME)
    except TurboLabError as error:
        typer.echo(f"no report: {error}", err=True)
        return None


def finish(run: BenchRun, report: Path | None, *, console: Console, as_json: bool) -> None:
    """Show the result and leave with the exit code: 0 fine, 1 no data or ended early."""
    from turbo_lab.report.bench_text import print_run, run_to_json

    if as_json:
        typer.echo(json.dumps(run_to_json(run, report), indent=1, ensure_ascii=False))
    else:
        print_run(run, report, console)
    if run.interrupted:
        raise typer.Exit(INTERRUPTED)
    if run.problem is not None:
        hint = f" Continue with --resume --out {run.folder}"
        raise type(run.problem)(f"{run.problem}{hint}") from run.problem
    no_data = not run.evidence.good if run.evidence.timelines else True
    raise typer.Exit(1 if no_data else 0)
