"""The servers that a live study compares: one that never guesses, and those that do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from turbo_lab.core.config import Dials
from turbo_lab.core.errors import TurboLabError, UsageError, did_you_mean
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.pool import current_pool, shared_server, start_together
from turbo_lab.engines.sampling_repair import repair_env
from turbo_lab.engines.tuning import cpu_settings
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.speculative.lookup import LONGEST, SHORTEST

METHODS = ("off", "ngram", "draft")
GPU_DRAFT = "Qwen/Qwen3-0.6B"  # same vocabulary as Qwen3-8B
Method = Literal["off", "ngram", "draft"]


@dataclass(frozen=True)
class Arm:
    """One way to serve. ``draft_tokens``: tokens guessed per step, 0 where nothing is guessed."""

    method: Method
    draft_tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse a method that does not exist, and a length that does not fit it."""
        if self.method not in METHODS:
            raise UsageError(f"method is {self.method!r}.{did_you_mean(self.method, METHODS)}")
        if (self.draft_tokens < 1) != (self.method == "off"):
            raise UsageError(
                f"{self.method} with {self.draft_tokens} tokens; 'off' guesses 0, others 1 or more"
            )

    def __str__(self) -> str:
        return self.method if self.method == "off" else f"{self.method} {self.draft_tokens}"

    def config(self, draft: str | None = None) -> dict[str, Any] | None:
        """The value of ``--speculative-config``; None for the off-control.

        ``draft``: folder or Hugging Face id of the draft model. Raises UsageError where the method
        needs one and there is none.
        """
        if self.method == "off":
            return None
        if self.method == "ngram":
            return {
                "method": "ngram",
                "num_speculative_tokens": self.draft_tokens,
                "prompt_lookup_min": SHORTEST,
                "prompt_lookup_max": LONGEST,
            }
        if draft is None:
            raise UsageError(
                "the draft arm needs a draft model: a folder (see turbo_lab.speculative.draft) or "
                "a Hugging Face id with the target's vocabulary."
            )
        return {
            "method": "draft_model", "model": draft, "num_speculative_tokens": self.draft_tokens,
        }  # fmt: skip


OFF = Arm("off")


def arms_of(methods: Sequence[Method], *, lengths: Sequence[int]) -> tuple[Arm, ...]:
    """The off-control first, then every method with every length."""
    return (OFF, *(Arm(m, k) for m in methods if m != "off" for k in lengths))


def base_args(dials: Dials, *, report: Callable[[str], None] = print) -> VllmArgs:
    """The off-control: on a CPU in float32, so that replies must be equal token for token.

    In 16 bits a step over several tokens may round otherwise than a step over one. On a GPU the
    model's own dtype is served, and differing replies are counted and shown.
    """
    if dials.mode == "cpu":
        cores = cpu_settings(report=report).cores
        return default_args(dials, dtype="float32", cores=cores, report=report)
    return default_args(dials, servers=len(METHODS), report=report)


def arm_args(arm: Arm, *, base: VllmArgs, draft: str | None = None) -> VllmArgs:
    """The off-control's arguments with the arm's speculation and nothing else changed."""
    config = arm.config(draft)
    text = None if config is None else json.dumps(config, sort_keys=True)
    return base.replace(speculative_config=text)


def draft_model(dials: Dials, *, report: Callable[[str], None] = print) -> str:
    """The draft: on a CPU the project's own, put together from its packed layers."""
    if dials.mode == "gpu":
        return GPU_DRAFT
    from turbo_lab.speculative.draft import assemble_draft

    return str(assemble_draft(report=report))


@dataclass(frozen=True)
class Shop:
    """The servers of one lesson. The first to be asked for starts all ``arms`` side by side, where
    there are few and memory allows; else each starts when it is asked for.

    On a CPU they carry a switch for the repair of sampled speculation, which is off until
    ``repaired`` is entered (see ``engines.sampling_repair``). ``draft``: another draft model than
    the course's, a folder or a Hugging Face id.
    """

    dials: Dials
    arms: tuple[Arm, ...] = ()
    draft: str | None = None
    report: Callable[[str], None] = print

    @cached_property
    def base(self) -> VllmArgs:
        """The off-control's arguments."""
        return base_args(self.dials, report=self.report)

    @property
    def switch(self) -> Path:
        """The file that switches the repair on."""
        return current_pool().folder / "sampling-repaired"

    def args(self, arm: Arm) -> VllmArgs:
        """Arguments of an arm's server."""
        draft = self.draft
        if draft is None and arm.method == "draft":
            draft = draft_model(self.dials, report=self.report)
        found = arm_args(arm, base=self.base, draft=draft)
        if arm == OFF or self.dials.mode == "gpu":
            return found
        return found.replace(env=(*found.env, repair_env(self.switch)))

    def server(self, arm: Arm) -> VllmServer:
        """The ready server of an arm. Raises EngineError."""
        if arm == OFF and len(self.arms) <= len(METHODS) and self.dials.mode == "cpu":
            with contextlib.suppress(TurboLabError):  # told when that arm itself is asked for
                start_together(*map(self.args, self.arms))
        return shared_server(self.args(arm))

    def leave(self, server: Any) -> None:
        """Stop an arm's server; the off-control, which other notebooks may share, stays."""
        if isinstance(server, VllmServer) and server.args != self.base:
            server.stop()

    @contextlib.contextmanager
    def repaired(self) -> Iterator[None]:
        """Sampled speculation is repaired on all servers of this shop inside the block."""
        if not self.dials.live:
            yield
            return
        self.switch.parent.mkdir(parents=True, exist_ok=True)
        self.switch.touch()
        try:
            yield
        finally:
            self.switch.unlink(missing_ok=True)
