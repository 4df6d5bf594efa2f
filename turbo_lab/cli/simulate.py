"""``turbo-lab simulate``: serve a trace on simulated replicas, search, statistics, calibration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from turbo_lab.sim.result import SimResult

# Options that several commands share, one name each.
Trace = Annotated[Path, typer.Option(help="Trace file (CSV or JSON lines, also gzipped).")]
Format = Annotated[str, typer.Option(help="auto, or the format's name.")]
Sort = Annotated[bool, typer.Option("--sort", help="Sort the trace by time (reads it whole).")]
Limit = Annotated[int | None, typer.Option(help="Only the first so many requests.")]
Speed = Annotated[float, typer.Option(help="Send the requests so many times as fast.")]
CalibrationName = Annotated[
    str | None, typer.Option("--calibration", help="Name of a calibration, or a .json file.")
]
Router = Annotated[str, typer.Option(help="round-robin, random, least-requests, power-of-two, "
                                     "length-aware, length-pools, prefix-aware, consistent-hash, "
                                     "priority.")]  # fmt: skip
Policy = Annotated[str, typer.Option(help="Waiting queue: fcfs, priority or fair (to tenants).")]
Slo = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=S", help="Objective in seconds: ttft=1.0,tpot=0.1; repeatable."),
]
Seed = Annotated[int, typer.Option(help="Of the router's draws.")]
Blocks = Annotated[int | None, typer.Option(help="KV blocks (default: the calibration's).")]
Sequences = Annotated[int | None, typer.Option("--max-sequences", help="Most running requests.")]
Budget = Annotated[int | None, typer.Option("--max-batched-tokens", help="Token budget of a step.")]
PrefixCache = Annotated[bool, typer.Option(help="Share cached prompt blocks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
EXACT_UP_TO = 1_000_000


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help=__doc__)
    group.command("run")(run)
    group.command("stats")(stats)
    app.add_typer(group, name="simulate")


def run(
    trace: Trace,
    format: Format = "auto",
    calibration: CalibrationName = None,
    replicas: Annotated[int, typer.Option(help="Engines behind the router.")] = 1,
    router: Router = "round-robin",
    policy: Policy = "fcfs",
    slo: Slo = None,
    blocks: Blocks = None,
    max_sequences: Sequences = None,
    max_batched_tokens: Budget = None,
    prefix_cache: PrefixCache = True,
    sort: Sort = False,
    limit: Limit = None,
    speed: Speed = 1.0,
    sketch: Annotated[
        bool | None,
        typer.Option(help="Percentiles within 0.5 % in fixed memory (default: past 1 million)."),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Serve a trace on simulated replicas and report latency, throughput and attainment.

    Every engine follows vLLM's scheduling rules with the step times of a
    calibration. A request that can never fit is refused, as a server would.

    Examples:\n
      turbo-lab simulate run --trace data/traces/chat.csv --replicas 4 --router least-requests\n
      turbo-lab simulate run --trace conv.jsonl --router prefix-aware --slo ttft=1.0,tpot=0.1 --json
    """
    from turbo_lab.sim.simulate import simulate
    from turbo_lab.workload.trace_reader import TraceFile

    engine = make_engine(
        calibration, policy=policy, prefix_cache=prefix_cache, blocks=blocks,
        max_sequences=max_sequences, max_batched_tokens=max_batched_tokens,
    )  # fmt: skip
    rows = TraceFile(trace, format, sort, limit)
    exact = not sketch if sketch is not None else trace_is_small(trace)
    result = simulate(
        faster(rows, speed), engine, replicas=replicas, router=router, slo=parse_slo(slo),
        seed=seed, exact=exact,
    )  # fmt: skip
    facts = {
        "trace": str(trace), "calibration": engine.calibration.name,
        "calibration_source": engine.calibration.source, "replicas": replicas, "router": router,
        "policy": policy, "seed": seed, **result.to_dict(),
    }  # fmt: skip
    typer.echo(json.dumps(facts, indent=1) if as_json else result_text(result, facts))
    raise typer.Exit(0 if result.completed else 1)


def stats(
    file: Annotated[Path, typer.Argument(help="Trace file (CSV or JSON lines, also gzipped).")],
    format: Format = "auto",
    sort: Sort = False,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Count a trace: rate, burstiness, lengths, and the prefix hits of an infinite cache.

    Examples:\n
      turbo-lab simulate stats data/traces/chat.csv\n
      turbo-lab simulate stats conversation_trace.jsonl --json
    """
    from turbo_lab.workload.trace_reader import TraceFile
    from turbo_lab.workload.trace_stats import trace_statistics

    facts = trace_statistics(TraceFile(file, format, sort, limit))
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {_short(v)}" for k, v in value.items())
        typer.echo(f"{name:22} {_short(value)}")


def make_engine(calibration: str | None, *, policy: str, prefix_cache: bool, **limits: int | None):
    """The engine that the options describe. Raises UsageError."""
    from dataclasses import replace

    from turbo_lab.sim.calibration import DEFAULT, read_calibration
    from turbo_lab.sim.engine import Engine

    found = read_calibration(calibration or DEFAULT)
    changed = {name: value for name, value in limits.items() if value is not None}
    return Engine(replace(found, **changed), policy=policy, prefix_cache=prefix_cache)


def parse_slo(words: list[str] | None) -> dict[str, float]:
    """``["ttft=1.0,tpot=0.1"]`` to limits in seconds. Raises UsageError."""
    from turbo_lab.core.errors import UsageError
    from turbo_lab.experiment.plan import parse_pairs

    split = [part for word in words or [] for part in word.split(",") if part.strip()]
    out = {}
    for name, text in parse_pairs(split, option="--slo").items():
        try:
            out[name] = float(text)
        except ValueError:
            raise UsageError(f"--slo takes seconds, e.g. ttft=0.25; got {text!r}") from None
    return out


def faster(rows: Any, speed: float) -> Any:
    """The same requests, their times divided by ``speed``. Raises UsageError."""
    from turbo_lab.core.errors import UsageError

    if not 0 < speed < float("inf"):
        raise UsageError(f"--speed is {speed}; allowed: above 0")
    if speed == 1:
        return rows
    from dataclasses import replace

    return (replace(row, arrival_s=row.arrival_s / speed) for row in rows)


def trace_is_small(path: Path) -> bool:
    """Whether all samples of the file's requests fit in memory easily (20 bytes a request)."""
    return not path.exists() or path.stat().st_size < 20 * EXACT_UP_TO


def result_text(result: SimResult, facts: dict[str, Any]) -> str:
    """The result in a few lines."""
    lines = [
        f"# {facts['replicas']} x {facts['calibration']} ({facts['calibration_source']}), "
        f"{facts['router']}, {facts['policy']}",
        f"requests {result.requests}, completed {result.completed}, refused {result.refused}, "
        f"preemptions {result.preemptions}",
        f"{'s':10}" + "".join(f"{name:>10}" for name in ("mean", "p50", "p90", "p95", "p99")),
    ]
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        row = facts[name]
        cells = [_short(row[k]) for k in ("mean", "p50", "p90", "p95", "p99")]
        lines.append(f"{name[:-2].upper():10}" + "".join(f"{cell:>10}" for cell in cells))
    lines.append(
        f"throughput {_short(result.throughput_tok_s)} tok/s, prefix hits "
        f"{_percent(result.prefix_hit_rate)} of prompt tokens, busy {_percent(facts['busy_share'])}"
    )
    if result.metrics.slo:
        limits = ", ".join(f"{name} <= {value:g} s" for name, value in result.metrics.slo.items())
        lines.append(f"SLO {limits}: {_percent(result.slo_attainment)} attained")
    lines.append(
        f"simulated {result.duration_s:.6g} s in {result.wall_s:.2f} s: "
        f"{facts['requests_per_s']:,.0f} requests/s (reading the trace took {result.read_s:.2f} s)"
    )
    return "\n".join(lines)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
