"""The served side of notebook 06: the same model as fp32, bf16 and two quantised checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.config import Dials
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.pool import shared_server, start_together
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate import grids
from turbo_lab.estimate.points import PromptSource, measure
from turbo_lab.experiment.quality_prompts import KINDS, QualityPrompt, load_prompts
from turbo_lab.experiment.quality_served import served_replies
from turbo_lab.experiment.quality_subject import Reply
from turbo_lab.experiment.quality_table import reply_quality
from turbo_lab.models.spec import ModelSpec
from turbo_lab.precision.weights.lesson import served_recipes
from turbo_lab.precision.weights.predict import plain_bytes, recipe_bytes
from turbo_lab.precision.weights.speed import POINTS
from turbo_lab.precision.weights.workshop import Workshop

ARMS = ("bf16", "fp32", "int8", "int4")  # the baseline first
KERNEL = re.compile(r"\b(\w+Kernel) for (CompressedTensors\w+)")
LONGEST_TOKENS = 1024


def arm_args(dials: Dials, workshop: Workshop) -> dict[str, VllmArgs]:
    """Arguments of all arms. One of the plain ones is the course's default server on a CPU.

    int8 and int4 compute in bf16 and load the workshop's checkpoints, written first if need be.
    """
    model = None if dials.mode == "cpu" else workshop.source

    def plain(dtype: str) -> VllmArgs:
        return default_args(dials, model=model, servers=2, dtype=dtype, report=_quiet)

    args = {"fp32": plain("float32"), "bf16": plain("bfloat16")}
    for arm, recipe in served_recipes(dials.effort).items():
        args[arm] = args["bf16"].replace(model=str(workshop.checkpoint(recipe)))
    return args


def arm_server(arm: str, *, dials: Dials, workshop: Workshop) -> VllmServer:
    """The ready server of one arm.

    Where memory allows, asking for the baseline starts all of them side by side; else, and on a
    GPU, each starts when it is asked for, and :func:`leave` makes room for the next.
    """
    args = arm_args(dials, workshop)
    if arm == ARMS[0] and dials.mode == "cpu":
        start_together(*args.values())
    return shared_server(args[arm])


def leave(server: Any, *, dials: Dials) -> None:
    """Stop an arm's server, unless it is the course's default one, which others still use.

    Anything that is no server (in replay, or where none could start) is left alone.
    """
    if isinstance(server, VllmServer) and server.args != default_args(dials, report=_quiet):
        server.stop()


def arm_bytes(spec: ModelSpec, workshop: Workshop) -> dict[str, int]:
    """Bytes of weights that a decode step of each arm reads, from config.json."""
    served = served_recipes(workshop.effort)
    packed = {arm: recipe_bytes(spec, workshop.recipes[name]).total for arm, name in served.items()}
    return {
        "fp32": plain_bytes(spec, dtype="fp32"),
        "bf16": plain_bytes(spec, dtype="bf16"),
    } | packed


def kernel_of(server: VllmServer) -> str:
    """The kernel for quantised layers that the engine's log names; "none" where it names none."""
    found = KERNEL.search(server.log.read_text(errors="replace"))
    return f"{found[1]} for {found[2]}" if found else "none"


def measure_steps(server: VllmServer, *, vocab: int, passes: int) -> list[dict[str, Any]]:
    """Rows of the three points of :mod:`.speed` on one server, as records keep them."""

    def send(requests: Sequence[Any], concurrency: int) -> Sequence[Any]:
        return run_closed_loop(requests, base_url=server.base_url, concurrency=concurrency)

    found = measure(
        POINTS, send=send, prompts=PromptSource(vocab=vocab, longest=LONGEST_TOKENS),
        model=server.model_name, passes=passes, retries=passes,
    )  # fmt: skip
    return grids.to_rows(found)


class ReplyBook:
    """Greedy replies of the arms to the same prompts, compared with those of the baseline.

    ``per_kind``: prompts of each kind but the long-context ones.
    """

    def __init__(self, *, per_kind: int) -> None:
        kinds = [kind for kind in KINDS if kind != "needle"]
        self.prompts: tuple[QualityPrompt, ...] = load_prompts(kinds, per_kind=per_kind)
        self.reference: tuple[Reply, ...] | None = None

    def compare(self, arm: str, server: VllmServer) -> dict[str, Any]:
        """``ReplyQuality`` of an arm against the baseline, as plain data.

        The baseline is asked twice and compared with itself. Raises UnmeasuredError for another
        arm before it.
        """
        if arm == ARMS[0]:
            self.reference = self._ask(server)
        if self.reference is None:
            raise UnmeasuredError(f"{ARMS[0]}, with which replies are compared, was not asked")
        return asdict(reply_quality(self.prompts, self.reference, self._ask(server)))

    def _ask(self, server: VllmServer) -> tuple[Reply, ...]:
        return served_replies(server.base_url, self.prompts, model=server.model_name)[0]


def rates(steps: Mapping[str, Sequence[Any]], arm: str) -> list[float]:
    """Tokens per second of one sequence, one per pass; empty where it was not measured."""
    return [1 / s for row in steps.get(arm, ()) if row.point == POINTS[0] for s in row.passes]


def _quiet(_line: str) -> None:
    return None
