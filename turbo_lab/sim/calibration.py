"""What the simulator must know about one engine on one machine: step times, limits, KV blocks.

``step_s = fixed + prefill_token * P + prefill_context * Q + decode(B) + context_token * C``

P: prompt tokens computed in the step. Q: query-key pairs of those tokens, for a chunk of p tokens
behind ``past`` cached ones ``p * past + p * (p + 1) / 2`` (``prefill_pairs``). B: sequences that
decode. C: tokens in the caches of those sequences, summed. ``decode(B)`` is ``decode_sequence * B``
or, where knots are given, piecewise linear through them.
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.core.host import repository_root

DEFAULT = "smollm2-cpu"
LONGEST_S = 1e6  # Of one step or one token, eleven days: more is a time in a wrong unit.
_COSTS = (
    "fixed_s", "prefill_token_s", "prefill_context_s", "decode_sequence_s", "context_token_s",
    "request_s",
)  # fmt: skip
_COUNTS = ("blocks", "block_tokens", "max_batched_tokens", "max_sequences")


def prefill_pairs(tokens: int, *, past: int = 0) -> float:
    """Query-key pairs of a chunk of ``tokens`` new tokens behind ``past`` cached ones (causal)."""
    return tokens * past + tokens * (tokens + 1) / 2


@dataclass(frozen=True)
class Calibration:
    """One engine on one machine. All costs are seconds, 0 or more.

    Attributes:
        name: what it is called in ``data/calibrations``.
        source: engine, model and machine it was measured on, and when.
        fixed_s: every step: weights read, scheduling, launching.
        prefill_token_s: per prompt token computed in the step.
        prefill_context_s: per query-key pair of those tokens.
        decode_sequence_s: per sequence that decodes in the step.
        context_token_s: per cached token that a decoding sequence reads.
        request_s: per request, beside the engine: from sending to the engine's queue and from the
            end of the step to the client (HTTP, tokenizer). Adds to latency, occupies no step.
        blocks: KV blocks of the pool.
        block_tokens: tokens of a block.
        max_batched_tokens: token budget of a step.
        max_sequences: most sequences that run together.
        decode_knots: (B, seconds) ascending in B, from (0, 0); replaces ``decode_sequence_s`` where
            given. Past the last knot the last slope goes on.
        evidence: how well the fit does, and from which points it was made (JSON values).
    """

    name: str
    source: str
    fixed_s: float
    prefill_token_s: float
    prefill_context_s: float
    decode_sequence_s: float
    context_token_s: float
    request_s: float
    blocks: int
    block_tokens: int
    max_batched_tokens: int
    max_sequences: int
    decode_knots: tuple[tuple[float, float], ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse costs below 0, limits below 1, and steps that take no time at all."""
        for name in _COSTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UsageError(f"calibration {self.name!r}: {name} is {value!r}, not a number")
            if not 0 <= value <= LONGEST_S:
                raise UsageError(
                    f"calibration {self.name!r}: {name} is {value}; allowed: 0 to {LONGEST_S:,.0f} "
                    "seconds"
                )
        for name in _COUNTS:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(
                    f"calibration {self.name!r}: {name} is {value!r}; allowed: a whole number >= 1"
                )
        knots = tuple((float(b), float(s)) for b, s in self.decode_knots)
        object.__setattr__(self, "decode_knots", knots)
        if knots and (knots[0] != (0.0, 0.0) or len(knots) < 2 or not _ascending(knots)):
            raise UsageError(
                f"calibration {self.name!r}: decode_knots are {list(knots)[:4]}; they begin with "
                f"(0, 0), and sequences rise from knot to knot while seconds never fall, up to "
                f"{LONGEST_S:,.0f}"
            )
        if self.fixed_s + self.prefill_token_s <= 0 or self.fixed_s + self.decode_s(1) <= 0:
            raise UsageError(f"calibration {self.name!r}: a step would take no time")

    def decode_s(self, sequences: float) -> float:
        """Seconds that ``sequences`` decoding sequences add to a step, their caches apart."""
        if not self.decode_knots:
            return self.decode_sequence_s * sequences
        at = bisect.bisect_left(self.decode_knots, (sequences, -math.inf))
        at = min(max(at, 1), len(self.decode_knots) - 1)
        (low, a), (high, b) = self.decode_knots[at - 1 : at + 1]
        return a + (b - a) * (sequences - low) / (high - low)

    def decode_table(self) -> tuple[float, ...]:
        """``decode_s`` of 0 to ``max_sequences`` sequences, for a simulator's inner loop."""
        return tuple(self.decode_s(b) for b in range(self.max_sequences + 1))

    def step_s(
        self,
        prefill_tokens: float = 0,
        *,
        decode_sequences: float = 0,
        context_tokens: float = 0,
        pairs: float = 0,
    ) -> float:
        """Seconds of one step.

        Args:
            prefill_tokens: prompt tokens computed in it (P).
            decode_sequences: sequences that decode in it (B).
            context_tokens: cached tokens that these read, summed (C).
            pairs: query-key pairs of the prompt tokens, summed over the chunks (Q).
        """
        return (
            self.fixed_s
            + self.prefill_token_s * prefill_tokens
            + self.prefill_context_s * pairs
            + self.decode_s(decode_sequences)
            + self.context_token_s * context_tokens
        )

    def scaled(self, factor: float) -> Calibration:
        """The same engine on a machine where all takes ``factor`` times as long."""
        if not 0 < factor < math.inf:
            raise UsageError(f"factor is {factor}; allowed: a finite number above 0")
        costs = {name: getattr(self, name) * factor for name in _COSTS}
        knots = tuple((count, seconds * factor) for count, seconds in self.decode_knots)
        return replace(self, **costs, decode_knots=knots)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        out = asdict(self)
        out["decode_knots"] = [list(k) for k in self.decode_knots]
        return out

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Calibration:
        """Inverse of ``to_dict``. Raises UsageError naming a missing, unknown or wrong field."""
        if not isinstance(raw, Mapping):
            raise UsageError(f"a calibration is an object, not {type(raw).__name__}")
        known = [f.name for f in fields(cls)]
        if unknown := sorted(set(raw) - set(known)):
            raise UsageError(f"unknown field {unknown[0]!r} in a calibration."
                             + did_you_mean(unknown[0], known))  # fmt: skip
        optional = {"decode_knots", "evidence"}
        if missing := [name for name in known if name not in raw and name not in optional]:
            raise UsageError(f"a calibration needs {', '.join(missing)}")
        try:
            return cls(**raw)
        except (TypeError, ValueError) as error:
            raise UsageError(f"calibration {raw['name']!r} is damaged: {error}") from error

    def write(self, path: str | Path) -> None:
        """Write it as JSON; a reader never sees half a file. Raises UsageError."""
        target = Path(path)
        partial = target.with_name(f".{target.name}.partial")
        try:
            partial.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
            partial.replace(target)
        except OSError as error:
            raise UsageError(f"cannot write {target}: {error.strerror or error}") from error


def _ascending(knots: tuple[tuple[float, float], ...]) -> bool:
    return all(
        low < high < math.inf and a <= b <= LONGEST_S for (low, a), (high, b) in pairwise(knots)
    )


def calibrations_folder() -> Path:
    """Where the project keeps its own calibrations."""
    return repository_root() / "data" / "calibrations"


def read_calibration(name: str | Path = DEFAULT) -> Calibration:
    """A calibration by its name in ``data/calibrations``, or from a JSON file.

    Raises UsageError for an unknown name, or a file that is no calibration.
    """
    path = Path(name)
    if path.suffix != ".json":
        path = calibrations_folder() / f"{name}.json"
        known = sorted(p.stem for p in calibrations_folder().glob("*.json"))
        if path.stem not in known:
            raise UsageError(f"there is no calibration {str(name)!r}, and it is no .json file."
                             + did_you_mean(str(name), known))  # fmt: skip
    try:
        return Calibration.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"the calibration {path} cannot be read: {error}.") from error
