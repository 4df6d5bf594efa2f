"""Solutions of notebook 04."""

from __future__ import annotations

import math
from collections import Counter
from types import MappingProxyType


def throughput_tok_s(users: int, output_tokens: int, ttft_s: float, tpot_s: float) -> float:
    """Little's law: users in flight = rate x time in the system.

    A reply of n tokens has n - 1 gaps after its first token.
    """
    e2e_s = ttft_s + (output_tokens - 1) * tpot_s
    return users * output_tokens / e2e_s


def idle_share(lengths: list[int], seats: int) -> float:
    """Static batches: each holds all its seats until its longest reply has ended.

    The seats that a last, smaller batch leaves empty are idle too.
    """
    batches = [lengths[i : i + seats] for i in range(0, len(lengths), seats)]
    steps = sum(max(batch) for batch in batches)
    return 1 - sum(lengths) / (seats * steps)


def knee_users(shared_s: float, per_user_s: float, seats: int) -> float:
    """E2E = shared + per_user * users; throughput over E2E is greatest at shared / per_user.

    Beyond the seats more users only queue, so no knee lies there.
    """
    return min(shared_s / per_user_s, seats)


def users_in_pool(blocks: int, block_tokens: int, prompt_tokens: int, output_tokens: int) -> int:
    """Requests that fit to their end, in whole blocks; the last token is never stored."""
    stored = prompt_tokens + output_tokens - 1
    return blocks // math.ceil(stored / block_tokens)


def chunked(prompt_tokens: int, chunk: int, step_s: float, token_s: float) -> tuple[float, float]:
    """(longest pause of a running reply, seconds until the new prompt is read).

    Every piece costs a step of its own; together the pieces read the prompt once.
    """
    pieces = math.ceil(prompt_tokens / chunk)
    pause_s = step_s + min(chunk, prompt_tokens) * token_s
    return pause_s, pieces * step_s + prompt_tokens * token_s


def fair_priorities(tenants: list[str]) -> list[int]:
    """The k-th request of each tenant gets priority k (lower goes first): tenants take turns."""
    seen: Counter[str] = Counter()
    priorities = []
    for tenant in tenants:
        priorities.append(seen[tenant])
        seen[tenant] += 1
    return priorities


SOLUTIONS = MappingProxyType({
    "04.1": throughput_tok_s,
    "04.2": idle_share,
    "04.3": knee_users,
    "04.4": users_in_pool,
    "04.5": chunked,
    "04.6": fair_priorities,
})  # fmt: skip
