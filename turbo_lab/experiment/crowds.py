"""Tenants that share one pool of blocks: what each round finds, predicted and played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from turbo_lab.engines.kv_watch import KvWatch, count_blocks, reset_prefix_cache
from turbo_lab.estimate.prefix import PrefixCache, Use, tenants_that_fit
from turbo_lab.experiment.prefix import SPECIAL, Asked, PrefixServer, ask_in_turn, prompt_request
from turbo_lab.workload.prompts import shared_prefix_prompts


@dataclass(frozen=True, kw_only=True)
class Tenants:
    """Tenants that ask in turn, each with a prefix of its own. Lengths in tokens."""

    count: int
    prefix_tokens: int
    suffix_tokens: int
    rounds: int = 2
    output_tokens: int = 2
    vocab_size: int
    seed: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Length of each prompt."""
        return self.prefix_tokens + self.suffix_tokens

    @property
    def shared_tokens(self) -> int:
        """Length of all prefixes together."""
        return self.count * self.prefix_tokens

    def fitting(self, *, pool_blocks: int, block_tokens: int) -> int:
        """How many such tenants a pool keeps (see ``tenants_that_fit``)."""
        return tenants_that_fit(
            pool_blocks=pool_blocks, prefix_tokens=self.prefix_tokens,
            prompt_tokens=self.prompt_tokens, block_tokens=block_tokens,
            output_tokens=self.output_tokens,
        )  # fmt: skip

    def prompts(self) -> list[list[list[int]]]:
        """By round, then by tenant."""
        flat = shared_prefix_prompts(
            self.count, per_group=self.rounds, prefix_tokens=self.prefix_tokens,
            suffix_tokens=self.suffix_tokens, vocab_size=self.vocab_size, seed=self.seed,
            avoid=SPECIAL,
        )  # fmt: skip
        return [flat[i * self.count : (i + 1) * self.count] for i in range(self.rounds)]

    def predict(self, *, pool_blocks: int, block_tokens: int) -> list[list[Use]]:
        """What a pool of this size finds, by simulation from an empty cache."""
        cache = PrefixCache(pool_blocks, block_tokens=block_tokens)
        return [
            [cache.serve(p, output_tokens=self.output_tokens) for p in one]
            for one in self.prompts()
        ]

    def play(self, server: PrefixServer, *, offload: bool = False) -> list[Asked]:
        """The same on the engine, round by round. Raises UnmeasuredError."""
        extra = {"kv_transfer_params": {"offload": True}} if offload else {}
        return [
            ask_in_turn(
                server,
                [prompt_request(p, model=server.model_name, output_tokens=self.output_tokens,
                                **extra) for p in one],
            )
            for one in self.prompts()
        ]  # fmt: skip


def tenant_counts(*, fitting: int, effort: str = "quick") -> tuple[int, ...]:
    """Numbers of tenants below, at and above the knee; all of them at full effort."""
    if effort == "smoke":
        return (fitting, fitting + 2)
    if effort == "full":
        return tuple(range(1, 2 * fitting + 3))
    return (max(1, fitting - 2), fitting, fitting + 1, fitting + 2, fitting + 4)


def with_count(tenants: Tenants, count: int) -> Tenants:
    """The same tenants, another number of them, and prompts that were never sent."""
    return replace(tenants, count=count, seed=tenants.seed + 100 * count)


def play_crowds(
    server: PrefixServer, crowds: Mapping[int, Tenants], *, watch: KvWatch, offload: bool = False
) -> dict[str, dict[str, Any]]:
    """Each crowd from an empty cache: its size (as text) to ``rounds`` and ``removed`` blocks.

    ``removed`` is counted from the engine's own KV events. With ``offload`` every request may keep
    its blocks in the watch's tier, which is emptied before and after. Raises UnmeasuredError.
    """
    found = {}
    for count, tenants in crowds.items():
        watch.clear_tier()
        reset_prefix_cache(server.base_url)
        start = len(watch.events())
        try:
            played = [asked.to_dict() for asked in tenants.play(server, offload=offload)]
        finally:
            watch.clear_tier()
        removed = count_blocks(watch.events(since=start)).get("BlockRemoved", 0)
        found[str(count)] = {"rounds": played, "removed": removed}
    return found
