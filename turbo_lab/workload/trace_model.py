"""A trace as a few numbers: arrivals, quantiles of lengths, and how prompts share blocks.

The project keeps models of public traces under ``data/traces/*.json``, never their rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.core.host import repository_root
from turbo_lab.workload.trace_arrivals import ArrivalShape
from turbo_lab.workload.traces import Marginal


@dataclass(frozen=True)
class PrefixBin:
    """Prompts up to a share of all lengths.

    ``fresh``: share of them that shares the root alone. ``shared``: quantiles (percent, share of
    the prompt's blocks) of what the others share with an earlier prompt.
    """

    up_to: float
    fresh: float
    shared: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class PrefixShape:
    """How prompts share blocks with earlier ones.

    Attributes:
        block_tokens: tokens of a block.
        root_blocks: leading blocks that all prompts have in common (a system prompt).
        bins: by length, ascending, the last up to 1.
        lag: quantiles (percent, requests) of how long ago the shared block was last used.
        window: how many earlier requests can be continued.
    """

    block_tokens: int
    root_blocks: int
    bins: tuple[PrefixBin, ...]
    lag: tuple[tuple[float, float], ...]
    window: int = 8192

    def __post_init__(self) -> None:
        """Accept the lists of a JSON file."""
        bins = tuple(b if isinstance(b, PrefixBin) else _bin(b) for b in self.bins)
        object.__setattr__(self, "bins", bins)
        object.__setattr__(self, "lag", _pairs(self.lag))
        if self.block_tokens < 1 or self.root_blocks < 0 or self.window < 1 or not bins:
            raise UsageError(f"{self}: blocks, window and bins must be there")
        if [b.up_to for b in bins] != sorted(b.up_to for b in bins) or bins[-1].up_to != 1:
            raise UsageError("the bins of a prefix shape must ascend to 1")


@dataclass(frozen=True)
class TraceModel:
    """A trace to draw from.

    Attributes:
        name: what it is called in ``data/traces``.
        source: the trace it was fitted to: name, licence, digest, requests (JSON values).
        arrivals: when requests come.
        prompt, output: lengths in tokens.
        rank_correlation: Spearman's, between the two lengths.
        prefix: shared prompts; None where the source does not tell.
    """

    name: str
    source: Mapping[str, Any]
    arrivals: ArrivalShape
    prompt: Marginal
    output: Marginal
    rank_correlation: float = 0.0
    prefix: PrefixShape | None = None
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """Refuse a correlation out of range."""
        if not -1 <= self.rank_correlation <= 1:
            raise UsageError(f"rank_correlation is {self.rank_correlation}; allowed: -1 to 1")

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        out = asdict(self)
        out["prompt"], out["output"] = self.prompt.points, self.output.points
        return json.loads(json.dumps(out))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> TraceModel:
        """Inverse of ``to_dict``. Raises UsageError naming what is wrong."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(raw) - known):
            raise UsageError(f"a trace model has no field {unknown[0]!r}; allowed: {sorted(known)}")
        try:
            values = dict(raw)
            values["arrivals"] = ArrivalShape(**raw["arrivals"])
            values["prompt"] = Marginal(_pairs(raw["prompt"]))
            values["output"] = Marginal(_pairs(raw["output"]))
            if raw.get("prefix") is not None:
                values["prefix"] = PrefixShape(**raw["prefix"])
            values["notes"] = tuple(raw.get("notes", ()))
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"the trace model is damaged: {error!r}") from error

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        text = json.dumps(self.to_dict(), indent=1)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(path)


def trace_model(name: str | Path) -> TraceModel:
    """A model by its name in ``data/traces``, or from a JSON file. Raises UsageError."""
    folder, path = repository_root() / "data" / "traces", Path(name)
    if path.suffix != ".json":
        path = folder / f"{name}.json"
        known = [p.stem for p in folder.glob("*.json")]
        if path.stem not in known:
            raise UsageError(f"there is no trace model {str(name)!r}."
                             + did_you_mean(str(name), known))  # fmt: skip
    try:
        return TraceModel.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"the trace model {path} cannot be read: {error}") from error


def quantile_curve(values: Any, percents: Any) -> tuple[tuple[float, float], ...]:
    """(percent, value) of measured values, for a Marginal or a lag."""
    found = np.percentile(np.asarray(values, dtype=float), percents)
    return tuple((float(p), round(float(v), 4)) for p, v in zip(percents, found, strict=True))


def _pairs(rows: Any) -> tuple[tuple[float, float], ...]:
    return tuple((float(a), float(b)) for a, b in rows)


def _bin(raw: Mapping[str, Any]) -> PrefixBin:
    return PrefixBin(float(raw["up_to"]), float(raw["fresh"]), _pairs(raw["shared"]))
