"""Options and helpers that the ``simulate`` commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from turbo_lab.sim.engine import Engine

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
AcceleratorName = Annotated[
    str | None, typer.Option("--accelerator", help="Data sheet whose power limit a busy one draws.")
]
Devices = Annotated[int, typer.Option(help="Accelerators of one replica.")]
BusyW = Annotated[float | None, typer.Option("--busy-w", help="Power of a busy one in W.")]
IdleW = Annotated[float | None, typer.Option("--idle-w", help="Power of one that waits in W.")]
Price = Annotated[float | None, typer.Option(help="Price of one replica, for the cost of the run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
EXACT_UP_TO = 1_000_000


def make_engine(
    calibration: str | None, *, policy: str, prefix_cache: bool, **limits: int | None
) -> Engine:
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


def trace_is_small(path: Path) -> bool:
    """Whether all samples of the file's requests fit in memory easily (20 bytes a request)."""
    return not path.exists() or path.stat().st_size < 20 * EXACT_UP_TO


def short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def check_price(price_per_hour: float | None) -> None:
    """Raises UsageError for a price that is none."""
    from turbo_lab.core.errors import UsageError

    if price_per_hour is not None and not 0 <= price_per_hour < float("inf"):
        raise UsageError(f"--price-per-hour {price_per_hour}; allowed: a finite number from 0")


def spending(facts: dict[str, Any]) -> list[str]:
    """Lines about energy and money, where they were asked for."""
    lines = []
    if facts["power"]:
        low, high = facts["energy_range_per_request_j"] or (None, None)
        known = facts["energy_per_request_j"]
        told = f"{short(known)} J" if known is not None else f"{short(low)} to {short(high)} J"
        lines.append(f"energy {told} a request ({facts['power']['source']})")
    if facts["cost_per_request"] is not None:
        lines.append(f"cost {short(facts['cost'])}, {short(facts['cost_per_request'])} a request")
    return lines
