"""From the words of a command line to a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.plan import parse_pairs
from turbo_lab.workload.shape import Tenant, Workload
from turbo_lab.workload.traces import TraceRow, read_trace

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
    trace_longest: int | None = None,
    trace_speed: float = 1.0,
) -> Workload:
    """The workload that these words ask for, what is left out by default.

    Half the input is shared by ``shared-prefix``, a conversation has four turns. Of a trace, as
    many rows are read as requests are wanted, those above ``trace_longest`` tokens of prompt and
    reply left out. Raises UsageError where words do not go together.
    """
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
        found |= {"trace": _rows(trace, requests, trace_longest), "trace_name": trace.name}
    return Workload(**found)


def _rows(trace: Path, requests: int, longest: int | None) -> tuple[TraceRow, ...]:
    """The first rows that are short enough; the gaps of those left out stay."""
    kept = [
        row for row in read_trace(trace)
        if longest is None or row.prompt_tokens + row.output_tokens <= longest
    ]  # fmt: skip
    if not kept:
        raise UsageError(f"{trace} has no request of {longest} tokens or fewer")
    return tuple(kept[:requests])


def parse_tenant(text: str) -> Tenant:
    """``NAME:share=3,input=512,output=64,prefix=256`` to a Tenant. Raises UsageError."""
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
