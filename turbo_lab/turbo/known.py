"""What is known of the Turbo paper, and how well: the finished record beside our own numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turbo_lab.core.host import repository_root
from turbo_lab.papers.schema import PaperRecord
from turbo_lab.papers.store import record

PAPER = "turbo-sigcomm-2026"


def artifact() -> dict[str, Any]:
    """The artifact's numbers (``data/reference/turbo.json``), each the artifact's own."""
    return json.loads((repository_root() / "data" / "reference" / "turbo.json").read_text())


def paper() -> PaperRecord:
    """The record of the paper."""
    return record(PAPER)


def known_table(measured: Mapping[str, str]) -> list[dict[str, str]]:
    """Rows of field, what is known, and status; our own measurements come last.

    Args:
        measured: what we measured, by name, in words with numbers.
    """
    one, facts = paper(), artifact()
    rows = [
        ("title", one.title, "confirmed"),
        ("venue", f"{one.venue} {one.year}", "confirmed"),
        ("mechanism", one.method, "artifact"),
        ("topology", f"{facts['simulation']['hosts']} hosts, {facts['simulation']['leaves']} leaf "
         f"and {facts['simulation']['spines']} spine switches, links "
         f"\"{facts['simulation']['links']}\", units {facts['simulation']['units']}", "artifact"),
    ]  # fmt: skip
    rows += [(c.what, c.number, "artifact") for c in one.claims if c.number is not None]
    rows += [(name, "not known", "unknown") for name in facts["unknown"]]
    rows += [(name, value, "our measurement") for name, value in measured.items()]
    return [{"field": f, "what": str(w), "status": s} for f, w, s in rows]


def gemm_slowdowns() -> list[dict[str, Any]]:
    """The artifact's products while multiprocessors are taken, beside ``n / (n - k)``."""
    from turbo_lab.turbo.cores import core_loss

    return [
        {"card": row["card"], "taken": f"{row['taken']} of {row['sms']}",
         "loss of cores alone": core_loss(row["sms"], taken=row["taken"]),
         "artifact": row["shared"] / row["alone"]}
        for row in artifact()["gemm_ms"]
    ]  # fmt: skip
