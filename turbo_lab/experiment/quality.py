"""Quality guard: did both sides say the same, and are the replies of one kind?

Equal outputs are expected in exact arithmetic under greedy decoding; in lower precision texts part
ways, and how far the reference parts from itself tells what is ordinary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.metrics.definitions import outcome
from turbo_lab.workload.request import Request

DEFAULT_PROMPTS = (
    "List the first ten prime numbers.",
    "Explain in one sentence why the sky is blue.",
    "Write the months of the year in order.",
    "What is the capital of France?",
    "Count from one to twenty in words.",
    "Name the planets of the solar system from the sun outwards.",
    "Translate 'good morning' into French, German and Spanish.",
    "Give the chemical formula of water, table salt and methane.",
)


@dataclass(frozen=True)
class Agreement:
    """How many of the compared replies are equal, and where the others part (share of the text)."""

    compared: int
    equal: int
    divergence: float | None

    @property
    def equal_share(self) -> float | None:
        """Equal replies / compared; None when nothing could be compared."""
        return self.equal / self.compared if self.compared else None

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "equal_share": self.equal_share}


def agreement(a: Sequence[str | None], b: Sequence[str | None]) -> Agreement:
    """Compare replies pair by pair; a missing reply is not compared.

    ``divergence`` is the mean share of the reply before the first difference, over unequal pairs.
    """
    pairs = [(x, y) for x, y in zip(a, b, strict=False) if x is not None and y is not None]
    unequal = [_common(x, y) for x, y in pairs if x != y]
    mean = sum(unequal) / len(unequal) if unequal else None
    return Agreement(len(pairs), len(pairs) - len(unequal), mean)


def _common(x: str, y: str) -> float:
    longest = max(len(x), len(y), 1)
    same = next(
        (i for i, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), min(len(x), len(y))
    )
    return same / longest


def replies(
    base_url: str,
    *,
    model: str,
    prompts: Sequence[str] = DEFAULT_PROMPTS,
    max_tokens: int = 48,
    timeout_s: float = 120.0,
) -> list[str | None]:
    """Greedy replies to fixed prompts, one at a time; None where a request failed."""
    requests = [Request(p, model=model, max_tokens=max_tokens) for p in prompts]
    runs = run_closed_loop(requests, base_url=base_url, concurrency=1, timeout_s=timeout_s)
    return [t.text if outcome(t).ok else None for t in runs]


@dataclass(frozen=True)
class Guard:
    """The verdict of the guard: candidate against reference, beside reference against itself."""

    candidate: Agreement
    reference: Agreement
    ok: bool | None


def guard(
    reference_url: str,
    candidate_url: str,
    *,
    reference_model: str,
    candidate_model: str,
    slack: float = 0.25,
    prompts: Sequence[str] = DEFAULT_PROMPTS,
) -> Guard:
    """Ask both servers the same, and the reference twice.

    Not ok when the candidate's share of equal replies is below the reference's own by more than
    ``slack``; None when nothing could be compared.
    """
    first = replies(reference_url, model=reference_model, prompts=prompts)
    again = replies(reference_url, model=reference_model, prompts=prompts)
    other = replies(candidate_url, model=candidate_model, prompts=prompts)
    own, theirs = agreement(first, again), agreement(first, other)
    if own.equal_share is None or theirs.equal_share is None:
        return Guard(theirs, own, None)
    return Guard(theirs, own, theirs.equal_share >= own.equal_share - slack)
