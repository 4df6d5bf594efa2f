"""Exercises of notebook 04: what concurrency costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case

MIXED = [2, 8, 2, 8]
FLOOD = ["a", "a", "a", "b", "a", "b"]


def _one_user_is_its_pace(throughput: Any) -> str | None:
    """A reply whose first token takes as long as any other comes at 1 / TPOT."""
    got = throughput(1, 50, 0.04, 0.04)
    return None if math.isclose(got, 25.0) else f"One user, every token 40 ms: {got}, not 25 tok/s."


def _equal_lengths_never_idle(idle: Any) -> str | None:
    """Full batches of equal replies leave no seat idle."""
    got = idle([7] * 12, 4)
    return None if math.isclose(got, 0.0, abs_tol=1e-12) else f"Three full batches of equals: {got}"


def _turns_are_kept(priorities: Any) -> str | None:
    """Among the requests of one tenant the order of arrival stays."""
    got = priorities(["x"] * 5)
    return None if list(got) == sorted(got) and len(set(got)) == 5 else f"One tenant alone: {got}"


def _batches(lengths: Sequence[int], seats: int) -> list[Sequence[int]]:
    return [lengths[i : i + seats] for i in range(0, len(lengths), seats)]


def _ignores_empty_seats(lengths: list[int], seats: int) -> float:
    held = sum(max(b) * len(b) for b in _batches(lengths, seats))
    return 1 - sum(lengths) / held


def _mean_of_batches(lengths: list[int], seats: int) -> float:
    shares = [1 - sum(b) / (seats * max(b)) for b in _batches(lengths, seats)]
    return sum(shares) / len(shares)


def _longest_of_all(lengths: list[int], seats: int) -> float:
    return 1 - sum(lengths) / (max(lengths) * seats * len(_batches(lengths, seats)))


def _pool_by_tokens(blocks: int, block: int, prompt: int, reply: int) -> int:
    return blocks * block // (prompt + reply - 1)


def _pool_by_prompt(blocks: int, block: int, prompt: int, reply: int) -> int:
    return blocks // math.ceil(prompt / block)


def _pool_with_last(blocks: int, block: int, prompt: int, reply: int) -> int:
    return blocks // math.ceil((prompt + reply) / block)


def _whole_pieces_only(prompt: int, chunk: int, step: float, token: float) -> tuple[float, float]:
    pieces = max(1, prompt // chunk)
    return step + min(chunk, prompt) * token, pieces * step + prompt * token


def _one_step_in_all(prompt: int, chunk: int, step: float, token: float) -> tuple[float, float]:
    return step + min(chunk, prompt) * token, step + prompt * token


def _pause_of_the_whole(prompt: int, chunk: int, step: float, token: float) -> tuple[float, float]:
    pieces = math.ceil(prompt / chunk)
    return step + prompt * token, pieces * step + prompt * token


def _tenants_in_line(tenants: list[str]) -> list[int]:
    order = list(dict.fromkeys(tenants))
    return [order.index(t) for t in tenants]


def _small_tenants_first(tenants: list[str]) -> list[int]:
    return [tenants.count(t) for t in tenants]


EXERCISES = (
    Exercise(
        id="04.1",
        task="Output tokens per second of a closed loop: throughput_tok_s(users, output_tokens, "
        "ttft_s, tpot_s)",
        cases=(
            case(4, 32, 0.5, 0.05, gives=128 / 2.05, hint="32 tokens have 31 gaps."),
            case(16, 1, 2.0, 0.05, gives=8.0, hint="One token has no gap."),
            case(1, 101, 0.0, 0.01, gives=101.0),
        ),
        properties=(_one_user_is_its_pace,),
        mistakes=(
            Mistake(
                "The wait for the first token belongs to the time in the system.",
                lambda users, n, ttft, tpot: users * n / ((n - 1) * tpot) if n > 1 else 0.0,
            ),
            Mistake(
                "n tokens have n - 1 gaps; the first token is in the TTFT.",
                lambda users, n, ttft, tpot: users * n / (ttft + n * tpot),
            ),
            Mistake(
                "That is one user's pace.", lambda users, n, ttft, tpot: n / (ttft + (n - 1) * tpot)
            ),
            Mistake(
                "That is users / TPOT, the ceiling.", lambda users, n, ttft, tpot: users / tpot
            ),
        ),
    ),
    Exercise(
        id="04.2",
        task="Share of idle seats in static batches: idle_share(lengths, seats); the next batch "
        "begins when the longest reply of the last has ended",
        cases=(
            case(MIXED, 2, gives=1 - 20 / 32, hint="Two batches of 8 steps on 2 seats."),
            case([5, 5, 5], 2, gives=0.25, hint="The last batch leaves a seat empty."),
            case([9], 1, gives=0.0),
            case([1, 9, 3, 3], 2, gives=1 - 16 / 24),
        ),
        properties=(_equal_lengths_never_idle,),
        mistakes=(
            Mistake("Seats that the last batch leaves empty are idle too.", _ignores_empty_seats),
            Mistake("Batches of unequal length count by their steps.", _mean_of_batches),
            Mistake("Each batch ends with its own longest reply.", _longest_of_all),
        ),
    ),
    Exercise(
        id="04.3",
        task="E2E = shared_s + per_user_s * users up to the seats: knee_users(shared_s, "
        "per_user_s, seats), where throughput / E2E is greatest",
        cases=(
            case(1.2, 0.2, 16, gives=6.0, hint="users / (a + b users)^2: set the derivative to 0."),
            case(3.0, 0.1, 16, gives=16.0, hint="Beyond the seats requests only queue."),
            case(0.5, 0.5, 8, gives=1.0),
        ),
        mistakes=(
            Mistake("The seats end it.", lambda a, b, seats: a / b),
            Mistake("Throughput alone has no maximum below the seats.", lambda a, b, seats: seats),
            Mistake("The ratio is upside down.", lambda a, b, seats: min(b / a, seats)),
            Mistake(
                "The derivative of users / (a + b users)^2 is 0 at a / b, not at its root.",
                lambda a, b, seats: min(math.sqrt(a / b), seats),
            ),
        ),
    ),
    Exercise(
        id="04.4",
        task="The memory knee: users_in_pool(blocks, block_tokens, prompt_tokens, output_tokens), "
        "requests that fit to their end",
        cases=(
            case(20, 128, 100, 60, gives=10, hint="159 stored tokens take two blocks."),
            case(20, 128, 100, 29, gives=20, hint="The last token is never stored."),
            case(7, 16, 40, 9, gives=2, hint="Blocks are whole."),
        ),
        mistakes=(
            Mistake("A request takes whole blocks.", _pool_by_tokens),
            Mistake("It grows while it is answered.", _pool_by_prompt),
            Mistake("Nothing looks at the last token, so it is not stored.", _pool_with_last),
        ),
    ),
    Exercise(
        id="04.5",
        task="A prompt is read in chunks beside running replies: chunked(prompt_tokens, chunk, "
        "step_s, token_s) -> (longest pause of a running reply, seconds until it is read)",
        cases=(
            case(1000, 1000, 0.03, 0.001, gives=(1.03, 1.03), hint="One piece."),
            case(1000, 250, 0.03, 0.001, gives=(0.28, 1.12), hint="Four steps."),
            case(1000, 300, 0.03, 0.001, gives=(0.33, 1.12), hint="The last piece is smaller."),
            case(100, 512, 0.03, 0.001, gives=(0.13, 0.13), hint="It fits into one chunk."),
        ),
        mistakes=(
            Mistake("The rest is a piece too: round up.", _whole_pieces_only),
            Mistake("Every piece costs a step.", _one_step_in_all),
            Mistake("A running reply waits for one piece, not for all.", _pause_of_the_whole),
        ),
    ),
    Exercise(
        id="04.6",
        task="Tenants take turns: fair_priorities(tenants) gives each request, in order of "
        "arrival, a priority (lower goes first, ties keep the order)",
        cases=(
            case(
                FLOOD, gives=[0, 1, 2, 0, 3, 1], hint="b's first request competes with a's first."
            ),
            case(["a", "b", "c"], gives=[0, 0, 0], hint="All first requests are equal."),
            case([], gives=[]),
        ),
        properties=(_turns_are_kept,),
        mistakes=(
            Mistake("That is first come, first served.", lambda tenants: list(range(len(tenants)))),
            Mistake("That serves one tenant after the other.", _tenants_in_line),
            Mistake("That lets the small tenant always go first.", _small_tenants_first),
        ),
    ),
)
