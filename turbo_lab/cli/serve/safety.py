"""What ``turbo-lab serve --checklist`` and ``--nginx`` print."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from turbo_lab.engines.args import VllmArgs
    from turbo_lab.engines.safety.row import Check

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "unknown": "dim"}


def run_checklist(
    args: VllmArgs | None,
    *,
    url: str | None,
    log: Path | None,
    proxy: Path | None,
    manifest: Path | None,
    burst: int,
    as_json: bool,
) -> None:
    """Print all rows and exit: 0 when none failed, 1 when one did."""
    from turbo_lab.engines.checklist import checklist, failed

    rows = checklist(args, url=url, log=log, proxy=proxy, manifest=manifest, burst=burst)
    counts = Counter(one.status for one in rows)
    if as_json:
        data = {"checks": [one.to_dict() for one in rows], "counts": dict(counts)}
        typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        _show(rows)
        typer.echo(", ".join(f"{counts[status]} {status}" for status in STYLES))
    raise typer.Exit(1 if failed(rows) else 0)


def _show(rows: tuple[Check, ...]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, padding=(0, 1))
    for name in ("check", "status", "seen", "what to do"):
        table.add_column(name, overflow="fold", no_wrap=name in ("check", "status"))
    for one in rows:
        words = "" if one.status == "ok" else f"{one.why} {one.fix}"
        table.add_row(
            one.id, Text(one.status, style=STYLES[one.status]), Text(one.evidence), Text(words)
        )
    Console(highlight=False).print(table)


def print_nginx(port: int, *, upstream_port: int | None, requests_per_minute: int) -> None:
    """Print a configuration for nginx on ``port`` of loopback, before a server on another port.

    Raises UsageError without the server's port, or for ports and rates that cannot be.
    """
    from turbo_lab.core.errors import UsageError
    from turbo_lab.engines.safety.proxy import ProxyPlan, nginx_config

    if upstream_port is None:
        raise UsageError("--nginx needs the server's port too: --port 8000 --nginx 8080")
    plan = ProxyPlan(
        upstream_port=upstream_port, port=port, requests_per_minute=requests_per_minute
    )
    typer.echo(nginx_config(plan), nl=False)
