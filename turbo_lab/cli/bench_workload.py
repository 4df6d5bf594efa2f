"""The options of ``turbo-lab bench`` that say what the requests have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from turbo_lab.workload.shape import Tenant, Workload

PANEL = "Workload"
Kind = Annotated[
    str,
    typer.Option("--workload", help="random, shared-prefix, multi-turn or tenants.",
                 rich_help_panel=PANEL),
]  # fmt: skip
PrefixTokens = Annotated[
    int | None,
    typer.Option(help="shared-prefix: tokens of the common beginning (default: half the input).",
                 rich_help_panel=PANEL),
]  # fmt: skip
Prefixes = Annotated[
    int | None,
    typer.Option(help="shared-prefix: how many beginnings there are (default: 1).",
                 rich_help_panel=PANEL),
]  # fmt: skip
Turns = Annotated[
    int | None,
    typer.Option(help="multi-turn: turns per conversation (default: 4).", rich_help_panel=PANEL),
]
Think = Annotated[
    float | None,
    typer.Option(help="multi-turn: seconds between a reply and the next turn (default: 0).",
                 rich_help_panel=PANEL),
]  # fmt: skip
Tenants = Annotated[
    list[str] | None,
    typer.Option("--tenant", metavar="NAME:share=3,input=512,output=64,prefix=256",
                 help="tenants: one of them; repeatable. All but the name may be left out.",
                 rich_help_panel=PANEL),
]  # fmt: skip
Trace = Annotated[
    Path | None,
    typer.Option(help="Arrivals and lengths from a CSV or JSONL file (instead of --rate).",
                 rich_help_panel=PANEL),
]  # fmt: skip
TraceSpeed = Annotated[
    float, typer.Option(help="Replay the trace so many times as fast.", rich_help_panel=PANEL)
]
Retries = Annotated[
    int,
    typer.Option(help="Send a refused request (429, 503, no connection) again, so many times."),
]
TENANT_KEYS = {
    "share": "share", "input": "input_tokens", "output": "output_tokens", "prefix": "prefix_tokens",
}  # fmt: skip


def make_workload(
    kind: str,
    *,
    requests: int,
    input_tokens: int,
    prefix_tokens: int | None = None,
    prefixes: int | None = None,
    turns: int | None = None,
    think: float | None = None,
    tenants: list[str] | None = None,
    trace: Path | None = None,
    trace_speed: float = 1.0,
) -> Workload:
    """The workload that the options ask for. Raises UsageError where they do not go together."""
    from turbo_lab.workload.shape import Workload
    from turbo_lab.workload.traces import read_trace

    found: dict[str, Any] = {"kind": kind, "trace_speed": trace_speed}
    if kind == "shared-prefix":
        found |= {"prefix_tokens": max(1, input_tokens // 2)}
    if kind == "multi-turn":
        found |= {"turns": 4}
    given = {"prefix_tokens": prefix_tokens, "prefixes": prefixes, "turns": turns, "think_s": think}
    found |= {name: value for name, value in given.items() if value is not None}
    if tenants:
        found["tenants"] = tuple(parse_tenant(text) for text in tenants)
    if trace is not None:
        found |= {"trace": tuple(read_trace(trace)[:requests]), "trace_name": trace.name}
    return Workload(**found)


def parse_tenant(text: str) -> Tenant:
    """``NAME:share=3,input=512,output=64,prefix=256`` to a Tenant. Raises UsageError."""
    from turbo_lab.core.errors import UsageError
    from turbo_lab.experiment.plan import parse_pairs
    from turbo_lab.workload.shape import Tenant

    name, _, rest = text.partition(":")
    words = parse_pairs([w for w in rest.split(",") if w.strip()], option="--tenant")
    values: dict[str, Any] = {}
    for key, value in words.items():
        if key not in TENANT_KEYS:
            raise UsageError(f"--tenant knows {', '.join(TENANT_KEYS)}, not {key!r}")
        try:
            values[TENANT_KEYS[key]] = float(value) if key == "share" else int(value)
        except ValueError:
            raise UsageError(f"--tenant {name}: {key} is {value!r}, no number") from None
    return Tenant(name=name.strip(), **values)
