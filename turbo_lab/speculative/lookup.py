"""n-gram speculation as the function of the text that it is: which steps guess, and how well.

The proposer looks for the last tokens of prompt and reply earlier in the same text and proposes
what followed there. So a greedy reply, known from a server that does not speculate, tells every
step of a server that does, before that server has run.

The rule is vLLM's (``vllm/v1/spec_decode/ngram_proposer.py``, 0.32): the longest ending of
``longest`` down to ``shortest`` tokens that occurs before, and of its places the earliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError

SHORTEST, LONGEST = 2, 4  # tokens of the ending that is looked for


@dataclass(frozen=True)
class GuessedStep:
    """One step of the target: tokens proposed, tokens of them accepted, tokens that it gave."""

    proposed: int
    accepted: int
    gave: int


def propose(
    tokens: Sequence[int], *, draft_tokens: int, shortest: int = SHORTEST, longest: int = LONGEST
) -> list[int]:
    """Up to ``draft_tokens`` ids that followed the ending of ``tokens`` where it occurred first.

    Empty where no ending of ``shortest`` or more tokens occurs before. Raises UsageError for
    lengths below 1 or in the wrong order.
    """
    if not 1 <= shortest <= longest or draft_tokens < 1:
        raise UsageError(
            f"shortest {shortest}, longest {longest}, draft_tokens {draft_tokens}; wanted are "
            "1 <= shortest <= longest and draft_tokens of 1 or more."
        )
    text = list(tokens)
    for size in range(min(longest, len(text) - 1), shortest - 1, -1):
        ending = text[-size:]
        for start in range(len(text) - size):
            if text[start : start + size] == ending:
                return text[start + size : start + size + draft_tokens]
    return []


def guess_steps(
    prompt: Sequence[int],
    reply: Sequence[int],
    *,
    draft_tokens: int,
    shortest: int = SHORTEST,
    longest: int = LONGEST,
) -> list[GuessedStep]:
    """The decode steps that a greedy reply takes with n-gram speculation.

    The first token of ``reply`` comes from the prompt's own step, which is not counted. Every
    further step gives the accepted tokens and one more. In the last step the reply may end before
    the guess is over: only what belongs to the reply counts as accepted there.
    """
    steps, done = [], 1
    while done < len(reply):
        guess = propose([*prompt, *reply[:done]], draft_tokens=draft_tokens, shortest=shortest,
                        longest=longest)  # fmt: skip
        rest = reply[done:]
        accepted = next(
            (i for i, (a, b) in enumerate(zip(guess, rest, strict=False)) if a != b),
            min(len(guess), len(rest)),
        )
        gave = min(accepted + 1, len(rest))
        steps.append(GuessedStep(len(guess), accepted, gave))
        done += gave
    return steps
