"""Speculative decoding in closed form: tokens per step, speed-up, the best length, break-even.

A draft guesses k tokens, the target checks them in one step and keeps the longest right beginning
plus one token of its own. Source: Leviathan et al., Fast Inference from Transformers via
Speculative Decoding, arXiv 2211.17192 (theorem 3.8, corollary 3.9); the cost of checking, ``v(k)``,
is ours (``estimate.verification``), because the paper takes it as 1.

``acceptance`` is either the paper's alpha (each guess is kept with this probability, independently
of the others), or what an engine counts: per position i the share of drafts whose guesses 1..i were
all kept. Costs are relative to one plain step of the target.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from numbers import Real

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.verification import CostOfCheck, free

Acceptance = float | Sequence[float]
BISECTIONS = 100  # halves [0, 1] until two neighbouring floats remain


def expected_tokens(acceptance: Acceptance, *, draft_tokens: int) -> float:
    """Mean tokens per step, the target's own token included: between 1 and ``draft_tokens + 1``.

    alpha: ``(1 - a^(k+1)) / (1 - a)``, k + 1 at a = 1. Per position: ``1 + p_1 + ... + p_k``, so
    rates measured with many guesses also hold for fewer: a shorter draft is the same draft cut.

    Raises:
        UsageError: rates outside 0 to 1, fewer positions than guesses, or positions that rise.
    """
    if draft_tokens < 0:
        raise UsageError(f"draft_tokens is {draft_tokens}; it must be at least 0")
    if isinstance(acceptance, Real):
        a = _checked_rate("acceptance", acceptance)
        if a in (0.0, 1.0) or draft_tokens == 0:
            return 1.0 + a * draft_tokens
        return -math.expm1((draft_tokens + 1) * math.log(a)) / (1 - a)
    return 1.0 + math.fsum(_checked_positions(acceptance, least=draft_tokens)[:draft_tokens])


def position_rates(accepted: Sequence[float], *, drafts: float) -> tuple[float, ...]:
    """Counters of an engine as rates: ``p_i = accepted_i / drafts``.

    vLLM's ``vllm:spec_decode_num_accepted_tokens_per_pos`` over ``vllm:spec_decode_num_drafts``. A
    draft counts once per sequence and step; one that was too short to reach position i counts as
    not accepted there, a step without any guess counts nowhere. Raises UsageError without drafts.
    """
    if drafts <= 0:
        raise UsageError(f"drafts is {drafts}: nothing was guessed, so there are no rates")
    return _checked_positions([count / drafts for count in accepted], least=0)


def rates_from_acceptance(acceptance: float, *, draft_tokens: int) -> tuple[float, ...]:
    """The rates per position that alpha stands for: ``a, a^2, ..., a^k``."""
    a = _checked_rate("acceptance", acceptance)
    return tuple(a**position for position in range(1, draft_tokens + 1))


def conditional_rates(rates: Sequence[float]) -> tuple[float, ...]:
    """Chance that guess i is kept, given that those before it were: ``p_i / p_(i-1)``.

    It ends before the first position that was never reached. Equal values mean that one alpha
    describes the draft; falling ones that later guesses are worse.
    """
    checked = _checked_positions(rates, least=0)
    before = (1.0, *checked)
    return tuple(p / q for p, q in zip(checked, before, strict=False) if q > 0)


def rates_from_conditional(conditional: Sequence[float]) -> tuple[float, ...]:
    """Inverse of ``conditional_rates``: running products."""
    found = [1.0]
    for rate in conditional:
        found.append(found[-1] * _checked_rate("a conditional rate", rate))
    return tuple(found[1:])


def equivalent_acceptance(tokens: float, *, draft_tokens: int) -> float:
    """The alpha whose ``expected_tokens`` is ``tokens``, by bisection.

    Raises UsageError when no alpha gives it: below 1 or above ``draft_tokens + 1``.
    """
    if draft_tokens < 1 or not 1 <= tokens <= draft_tokens + 1:
        raise UsageError(
            f"{tokens:g} tokens per step with {draft_tokens} guesses: between 1 and "
            f"{draft_tokens + 1} are possible, and at least one guess is needed"
        )
    low, high = 0.0, 1.0
    if tokens >= draft_tokens + 1:
        return high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if expected_tokens(middle, draft_tokens=draft_tokens) <= tokens:
            low = middle
        else:
            high = middle
    return low


def step_cost(draft_tokens: int, *, draft_cost: float, verify_cost: CostOfCheck = free) -> float:
    """Cost of one speculative step in plain steps: ``k c + v(k)``; 1 without guesses.

    ``draft_cost``: c, one step of the draft over one plain step of the target at this concurrency.
    """
    if draft_tokens < 0 or draft_cost < 0:
        raise UsageError(f"draft_tokens {draft_tokens} and draft_cost {draft_cost}: not below 0")
    return draft_tokens * draft_cost + verify_cost(draft_tokens) if draft_tokens else 1.0


def speedup(
    acceptance: Acceptance,
    *,
    draft_tokens: int,
    draft_cost: float,
    verify_cost: CostOfCheck = free,
) -> float:
    """Tokens per second over those of plain decoding: ``E / (k c + v(k))``; below 1 it is slower.

    With ``verify_cost=free`` this is the paper's ``E / (k c + 1)``. For a batch of n take c and v
    as measured at n; where not every step has a guess, see ``estimate.proposals``.
    """
    tokens = expected_tokens(acceptance, draft_tokens=draft_tokens)
    return tokens / step_cost(draft_tokens, draft_cost=draft_cost, verify_cost=verify_cost)


def operations_ratio(
    acceptance: Acceptance, *, draft_tokens: int, draft_operations: float
) -> float:
    """Operations per token over those of plain decoding: ``(k c_hat + k + 1) / E``, at least 1.

    ``draft_operations``: c_hat, the draft's operations per token over the target's.
    """
    work = draft_tokens * draft_operations + draft_tokens + 1
    return work / expected_tokens(acceptance, draft_tokens=draft_tokens)


def optimal_draft_tokens(
    acceptance: Acceptance, *, draft_cost: float, verify_cost: CostOfCheck = free, most: int = 10
) -> int:
    """The number of guesses from 0 to ``most`` with the highest speed-up; 0 means: do not guess.

    Equal ones go to the fewest. Raises UsageError when ``verify_cost`` or the positions of
    ``acceptance`` do not reach ``most``.
    """
    found = [
        speedup(acceptance, draft_tokens=k, draft_cost=draft_cost, verify_cost=verify_cost)
        for k in range(most + 1)
    ]
    return found.index(max(found))


def break_even_acceptance(
    draft_tokens: int, *, draft_cost: float, verify_cost: CostOfCheck = free
) -> float | None:
    """The smallest alpha that is no slower than plain decoding; None where even alpha = 1 loses."""
    cost = step_cost(draft_tokens, draft_cost=draft_cost, verify_cost=verify_cost)
    if cost > draft_tokens + 1:
        return None
    return equivalent_acceptance(max(1.0, cost), draft_tokens=draft_tokens)


def break_even_draft_cost(
    acceptance: Acceptance, *, draft_tokens: int, verify_cost: CostOfCheck = free
) -> float | None:
    """The dearest draft that pays: ``c = (E - v(k)) / k``; None where even a free one loses."""
    if draft_tokens < 1:
        raise UsageError(f"draft_tokens is {draft_tokens}; it must be at least 1")
    gain = expected_tokens(acceptance, draft_tokens=draft_tokens) - verify_cost(draft_tokens)
    return gain / draft_tokens if gain >= 0 else None


def speedup_map(
    acceptances: Sequence[float],
    *,
    draft_tokens: Sequence[int],
    draft_costs: Sequence[float],
    verify_cost: CostOfCheck = free,
) -> np.ndarray:
    """Speed-ups of shape (acceptances, draft_tokens, draft_costs), for a break-even map.

    ``[:, :, 0]`` is alpha over k at the first cost, ``[:, 0, :]`` alpha over c at the first k.
    """
    shape = (len(acceptances), len(draft_tokens), len(draft_costs))
    found = [
        speedup(a, draft_tokens=k, draft_cost=c, verify_cost=verify_cost)
        for a in acceptances
        for k in draft_tokens
        for c in draft_costs
    ]
    return np.array(found, dtype=float).reshape(shape)


def _checked_rate(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise UsageError(f"{name} is {value!r}; a probability lies between 0 and 1")
    return float(value)


def _checked_positions(rates: Sequence[float], *, least: int) -> tuple[float, ...]:
    checked = tuple(_checked_rate(f"position {i}", p) for i, p in enumerate(rates, start=1))
    if len(checked) < least:
        raise UsageError(
            f"acceptance has {len(checked)} positions and {least} guesses are asked for; "
            "measure with as many guesses, or give one alpha"
        )
    for position, (before, after) in enumerate(itertools.pairwise(checked), start=2):
        if after > before:
            raise UsageError(
                f"position {position} was accepted more often ({after:g}) than the one before "
                f"({before:g}); these are conditional rates: use rates_from_conditional"
            )
    return checked
