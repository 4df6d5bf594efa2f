"""What a simulated run costs: money, and energy by a power model, per request and per token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.hardware.accelerators import accelerator
from turbo_lab.metrics.cost import JOULES_PER_KWH, MILLION, SECONDS_PER_HOUR, PowerModel

NO_POWER = "unmeasured: no power is known; give --accelerator NAME, or --busy-w and --idle-w"
NO_IDLE = (
    "unmeasured: data sheets print no idle power; give --idle-w (nvidia-smi shows it). The range "
    "is from replicas that draw nothing while they wait to such that never draw less than busy"
)
NO_PRICE = "unmeasured: give --price-per-hour"


def power_model(
    *,
    name: str | None = None,
    devices: int = 1,
    busy_w: float | None = None,
    idle_w: float | None = None,
) -> PowerModel | None:
    """The power of one replica; None where nothing is given.

    Args:
        name: data sheet of the accelerator; its power limit is taken as busy power, which is an
            upper bound.
        devices: accelerators of a replica.
        busy_w, idle_w: of one accelerator in W, instead of or beside the sheet's.

    Raises:
        UsageError: an unknown accelerator, one without a printed power, impossible watts.
    """
    if devices < 1:
        raise UsageError(f"{devices} devices a replica; allowed: 1 or more")
    if name is None and busy_w is None:
        if idle_w is not None:
            raise UsageError("--idle-w alone is no power model; give --busy-w or --accelerator too")
        return None
    source = "given"
    if name is not None and busy_w is None:
        sheet = accelerator(name)
        figure = sheet.figures["power_w"]
        if figure.value is None:
            raise UsageError(f"no source gives the power of {sheet.name}; give --busy-w")
        busy_w = figure.value
        source = f"power limit of {sheet.name} ({figure.source}, {figure.date}): an upper bound"
    one = PowerModel(busy_w or 0.0, idle_w, source)  # refuses before they are multiplied
    idle = None if one.idle_w is None else devices * one.idle_w
    return PowerModel(devices * one.busy_w, idle, one.source)


def energy_facts(run: Mapping[str, Any], power: PowerModel | None) -> dict[str, Any]:
    """Energy of a run: JSON-ready; null with ``energy_note`` where it is unknown.

    ``run``: ``SimResult.to_dict``, of which ``busy_s``, ``replica_s``, ``completed`` and
    ``output_tokens`` are read. ``energy_per_request_j`` counts completed requests,
    ``kwh_per_million_output_tokens`` their tokens; both carry the idle time of all replicas.
    """
    keys = ("energy_j", "energy_per_request_j", "kwh_per_million_output_tokens")
    if power is None:
        return {**dict.fromkeys(keys), "energy_range_per_request_j": None, "power": None,
                "energy_note": NO_POWER}  # fmt: skip
    times = {"busy_s": run["busy_s"], "up_s": run["replica_s"]}
    energy = power.energy_j(**times)
    count, tokens = run["completed"], run["output_tokens"]
    low, high = power.range_j(**times)
    return {
        "energy_j": energy,
        "energy_per_request_j": None if energy is None or not count else energy / count,
        "kwh_per_million_output_tokens": None
        if energy is None or not tokens
        else energy / JOULES_PER_KWH / tokens * MILLION,
        "energy_range_per_request_j": [low / count, high / count] if count else None,
        "power": {"busy_w": power.busy_w, "idle_w": power.idle_w, "source": power.source},
        "energy_note": NO_IDLE if energy is None else None,
    }


def cost_facts(run: Mapping[str, Any], price_per_hour: float | None) -> dict[str, Any]:
    """Money for all replicas' time, in the price's currency; null with ``cost_note``."""
    keys = ("cost", "cost_per_request", "cost_per_million_output_tokens")
    if price_per_hour is None:
        return {**dict.fromkeys(keys), "cost_note": NO_PRICE}
    if not 0 <= price_per_hour < float("inf"):
        raise UsageError(f"--price-per-hour {price_per_hour}; allowed: a finite number from 0")
    cost = run["replica_s"] / SECONDS_PER_HOUR * price_per_hour
    count, tokens = run["completed"], run["output_tokens"]
    return {
        "cost": cost,
        "cost_per_request": cost / count if count else None,
        "cost_per_million_output_tokens": cost / tokens * MILLION if tokens else None,
        "cost_note": None,
    }
