"""The loads that a calibration sends: crowds of every size, and prompts alone and in pairs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.points import PromptSource
from turbo_lab.sim.calibration_limits import EngineLimits
from turbo_lab.workload.request import Request

CROWDS = (1, 2, 4, 8, 16, 32, 64, 128)
SHORTEST, LONGEST = 32, 1024  # tokens of a prompt
REPLY = (12, 20)  # tokens of a reply
PER_SEAT = 3  # requests of each user of a crowd
PAIRS = 8  # prompts sent two at a time


@dataclass(frozen=True)
class CalibrationLoad:
    """A closed loop. ``judge``: kept out of the fit, to judge it by."""

    name: str
    concurrency: int
    requests: tuple[Request, ...]
    judge: bool = False

    def __str__(self) -> str:
        return f"{self.name} (held out)" if self.judge else self.name


def calibration_loads(
    limits: EngineLimits, *, prompts: PromptSource, seed: int, widest: int | None = None
) -> Iterator[CalibrationLoad]:
    """One round of loads.

    Crowds of 1, 2, 4 ... users up to ``widest`` (default: all seats, at most 128) make decode and
    mixed steps. A crowd begins with its shortest prompts, which fit into one step together; longer
    ones follow one by one, so that wide crowds have long contexts too. Prompts with a reply of one
    token, two at a time, make steps of a prompt alone. The crowd between the two widest is the
    judge. Equal seeds give equal loads; the token ids are always fresh.
    """
    rng = random.Random(f"calibration-{seed}")
    top = min(CROWDS[-1] if widest is None else widest, limits.max_sequences)
    sizes = [size for size in CROWDS if size < top] + [top]
    if top < 2:
        raise UsageError(f"the widest crowd is {top}; a calibration needs 2 sequences or more")
    for size in sizes:
        yield _crowd(limits, size, prompts, rng)
    between = (sizes[-2] + sizes[-1]) // 2
    if between not in sizes:
        yield replace(_crowd(limits, between, prompts, rng), judge=True)
    yield _prompt_pairs(limits, prompts, rng)


def _crowd(
    limits: EngineLimits, size: int, prompts: PromptSource, rng: random.Random
) -> CalibrationLoad:
    longest = _longest(limits, size, reply=REPLY[1], waves=PER_SEAT)
    lengths = sorted(_spread(max(PER_SEAT * size, 8), longest, rng))
    later = lengths[size:]
    rng.shuffle(later)
    lengths[size:] = later
    requests = [
        _request(limits, prompts, tokens=tokens, reply=rng.randint(*REPLY)) for tokens in lengths
    ]
    return CalibrationLoad(f"{size} users", size, tuple(requests))


def _prompt_pairs(
    limits: EngineLimits, prompts: PromptSource, rng: random.Random
) -> CalibrationLoad:
    lengths = _spread(PAIRS, _longest(limits, 2, reply=1, waves=1), rng)
    requests = [_request(limits, prompts, tokens=tokens, reply=1) for tokens in lengths]
    return CalibrationLoad("prompts in pairs", 2, tuple(requests))


def _longest(limits: EngineLimits, size: int, *, reply: int, waves: int) -> int:
    """The longest prompt of a crowd: of ``waves`` equal groups from short to long the first fits
    into one step, and any of them into the pool.
    """
    pool = limits.blocks * limits.block_tokens // size - limits.block_tokens
    room = min(
        LONGEST, waves * limits.max_batched_tokens // size, limits.longest_tokens - reply, pool
    )
    if room < 2:
        raise UsageError(
            f"{size} prompts do not fit into a step of {limits.max_batched_tokens} tokens and "
            f"{limits.blocks} blocks; ask for a narrower crowd (widest)"
        )
    return room


def _spread(count: int, longest: int, rng: random.Random) -> list[int]:
    """Lengths from short to long in equal ratios, shuffled."""
    low = min(SHORTEST, longest)
    lengths = [round(low * (longest / low) ** (i / max(1, count - 1))) for i in range(count)]
    rng.shuffle(lengths)
    return lengths


def _request(limits: EngineLimits, prompts: PromptSource, *, tokens: int, reply: int) -> Request:
    return Request(
        prompt=prompts.fresh(tokens),
        model=limits.model,
        max_tokens=reply,
        endpoint="completions",
        extra={"ignore_eos": True},
        labels={"input_tokens": tokens, "output_tokens": reply},
    )
