"""The course's default server for each mode: the bundled model on CPU, a Qwen3 on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.config import Dials
from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GiB
from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.tuning import cpu_settings

# Weights in bf16 plus room for a cache worth looking at; the smallest card that each fits.
GPU_MODELS = ((40 * GiB, "Qwen/Qwen3-8B"), (15 * GiB, "Qwen/Qwen3-1.7B"), (0, "Qwen/Qwen3-0.6B"))
GPU_SHARE = 0.9  # of the card, when several servers divide it


def gpu_model(memory_bytes: int) -> str:
    """The largest of the course's models that leaves room for a KV cache on such a card."""
    return next(name for least, name in GPU_MODELS if memory_bytes >= least)


def default_args(
    dials: Dials,
    *,
    model: str | None = None,
    servers: int = 1,
    report: Callable[[str], None] = print,
    **changes: Any,
) -> VllmArgs:
    """Arguments of the default server in this mode; ``changes`` replace single ones.

    ``servers``: so many of them shall run side by side. A GPU's memory is divided among them; on
    CPU nothing changes.

    On CPU the bundled model is served with the dtype and cores that this machine measured as
    fastest (unless ``dtype`` or ``cores`` is among the changes); the choice is reported. Raises
    UsageError in replay mode, where nothing is started.
    """
    if not dials.live:
        raise UsageError(
            "replay mode starts no engine. Use mode='cpu' or mode='gpu' "
            f"(this machine: {dials.reason})."
        )
    if dials.mode == "gpu":
        name = model or gpu_model(host.gpus()[0].memory_bytes // servers)
        values: dict[str, Any] = {
            "model": name,
            "device": "gpu",
            "dtype": "auto",
            "enforce_eager": False,
        }
        if servers > 1:
            values["gpu_memory_utilization"] = round(GPU_SHARE / servers, 2)
        return VllmArgs.make(**{**values, **changes})
    values = {"model": local_model.resolve_model(model, report=report)}
    if not {"dtype", "cores"} <= changes.keys():
        settings = cpu_settings(report=report)
        report(f"This machine serves fastest with {settings.describe()}")
        values |= {"dtype": settings.dtype, "cores": settings.cores}
    return VllmArgs.make(**{**values, **changes})
