"""From resource samples to a few numbers of the run: means, peaks, counter growth, energy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def column(rows: Rows, *path: str) -> list[tuple[float, float]]:
    """``(t_s, value)`` of a nested field, rows without it left out: ``processes client cores``."""
    out = []
    for row in rows:
        value: Any = row
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, int | float):
            out.append((float(row["t_s"]), float(value)))
    return out


def growth(rows: Rows, counter: str) -> float | None:
    """Growth of an engine counter over the run; None when it is not there or was reset."""
    seen = [value for _, value in column(rows, "engine", counter)]
    if len(seen) < 2 or any(b < a for a, b in itertools.pairwise(seen)):
        return None
    return seen[-1] - seen[0]


def first_growth(rows: Rows, names: Sequence[str]) -> float | None:
    """Growth of the first of these counters that exists (names differ between versions)."""
    return next((g for name in names if (g := growth(rows, name)) is not None), None)


def energy_j(rows: Rows) -> float | None:
    """Energy of all GPUs over the run: their own counters, else power integrated over time."""
    if len(rows) < 2 or not rows[0].get("gpus"):
        return None
    total = 0.0
    for index in range(len(rows[0]["gpus"])):
        one = _gpu_energy_j(rows, index)
        if one is None:
            return None
        total += one
    return total


def _gpu_energy_j(rows: Rows, index: int) -> float | None:
    cards = [(row["t_s"], row["gpus"][index]) for row in rows if len(row["gpus"]) > index]
    counted = [card["energy_mj"] for _, card in cards if card["energy_mj"] is not None]
    if len(counted) >= 2:
        return (counted[-1] - counted[0]) / 1e3
    power = [(t, card["power_w"]) for t, card in cards if card["power_w"] is not None]
    if len(power) < 2:
        return None
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(power))


def other_cores(rows: Rows, *, cores: int) -> float | None:
    """Processor cores that neither client nor server used, mean over the run.

    Machine time (``cpu_percent`` of ``cores``) minus the growth of the processor time of the
    sampled processes; None where it was not sampled, or a sampled process came or went.
    """
    if len(rows) < 2 or rows[-1]["t_s"] <= rows[0]["t_s"]:
        return None
    busy_s = 0.0
    for before, after in itertools.pairwise(rows):
        percent = after.get("cpu_percent")
        if percent is None:
            return None
        busy_s += percent / 100 * cores * (after["t_s"] - before["t_s"])
    for name in rows[0].get("processes") or {}:
        seen = [value for _, value in column(rows, "processes", name, "cpu_s")]
        if len(seen) < len(rows) or seen[-1] < seen[0]:
            return None
        busy_s -= seen[-1] - seen[0]
    return max(0.0, busy_s) / (rows[-1]["t_s"] - rows[0]["t_s"])


def describe(rows: Rows) -> dict[str, Any]:
    """Means and peaks over the run; None where nothing was sampled."""
    client = [v for _, v in column(rows, "processes", "client", "cores")]
    server = [v for _, v in column(rows, "processes", "server", "cores")]
    return {
        "samples": len(rows),
        "client_cores_mean": _mean(client),
        "client_cores_max": max(client, default=None),
        "server_cores_mean": _mean(server),
        "server_resident_bytes_max": _peak(rows, "processes", "server", "resident_bytes"),
        "page_cache_bytes_max": _peak(rows, "page_cache_bytes"),
        "machine_cpu_percent_mean": _mean([v for _, v in column(rows, "cpu_percent")]),
        "gpu_energy_j": energy_j(rows),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _peak(rows: Rows, *path: str) -> float | None:
    return max((v for _, v in column(rows, *path)), default=None)
