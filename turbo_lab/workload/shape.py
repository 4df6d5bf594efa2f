"""What the requests of a run have in common: nothing, a prefix, a conversation, a tenant.

Only lengths and memberships; the words are made where a tokenizer is known.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.workload.traces import TraceRow

Kind = Literal["random", "shared-prefix", "multi-turn", "tenants"]
MAX_TRACE_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """One of many users of a server.

    ``share`` is relative to the other tenants' and is kept in the number of requests: with a rate,
    each tenant's rate is its part of it. Lengths in tokens; None takes the run's.
    ``prefix_tokens`` begin all its prompts.
    """

    name: str
    share: float = 1.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    prefix_tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse a tenant without a name, a share or a possible length."""
        if not self.name or not 0 < self.share < math.inf:
            raise UsageError(f"tenant {self.name!r} needs a name and a share above 0")
        for what in ("input_tokens", "output_tokens"):
            value = getattr(self, what)
            if value is not None and value < 1:
                raise UsageError(f"{what} of tenant {self.name} is {value}; it must be at least 1")
        if self.prefix_tokens < 0:
            raise UsageError(f"prefix_tokens of tenant {self.name} must not be negative")


@dataclass(frozen=True)
class Slot:
    """One request to be made.

    ``input_tokens`` is the length of its prompt; of a later turn, of the new message alone.
    ``prefix`` names the beginning of ``prefix_tokens`` that it shares with others of that name.
    ``labels`` go with it into its Timeline.
    """

    input_tokens: int
    output_tokens: int
    prefix: str | None = None
    prefix_tokens: int = 0
    labels: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How the requests of a run hang together.

    Attributes:
        kind: ``random`` (prompts share nothing), ``shared-prefix``, ``multi-turn``, ``tenants``.
        prefixes, prefix_tokens: so many groups, each with one beginning of this length, in turns
            0, 1, ..., 0, 1, ...: neighbours never share, so a cache must hold all.
        turns, think_s: turns of each conversation, and the pause after each reply.
        tenants: see ``Tenant``; mixed at random in exact numbers.
        trace: arrivals and lengths of the requests (``random`` only); ``trace_name`` says whence,
            ``trace_speed`` how many times as fast it is replayed.
        texts: the prompts themselves, each asked once, in this order (``random`` only); their
            lengths are what they are, so no input length is asked for.
    """

    kind: Kind = "random"
    prefixes: int = 1
    prefix_tokens: int = 0
    turns: int = 1
    think_s: float = 0.0
    tenants: tuple[Tenant, ...] = ()
    trace: tuple[TraceRow, ...] = ()
    trace_name: str | None = None
    trace_speed: float = 1.0
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse options that do not belong to the kind, and impossible values."""
        if self.kind not in get_args(Kind):
            raise UsageError(f"workload {self.kind!r}.{did_you_mean(self.kind, [*get_args(Kind)])}")
        _check_kind(self)
        names = [t.name for t in self.tenants]
        if len(set(names)) < len(names):
            raise UsageError(f"tenants must have different names, got {', '.join(names)}")
        if not 0 <= self.think_s < math.inf or not 0 < self.trace_speed < math.inf:
            raise UsageError(
                f"think_s is {self.think_s!r} (0 or more), trace_speed {self.trace_speed!r} "
                "(above 0)"
            )
        if len(self.trace) > MAX_TRACE_ROWS:
            raise UsageError(f"a run takes at most {MAX_TRACE_ROWS:,} rows of a trace")

    def variables(self) -> dict[str, Any]:
        """What sets it apart from the plain workload, as flat settings; empty for that one."""
        plain = Workload()
        out = {
            name: getattr(self, name)
            for name in ("prefixes", "prefix_tokens", "turns", "think_s", "trace_name",
                         "trace_speed")
            if getattr(self, name) != getattr(plain, name)
        }  # fmt: skip
        if self.kind != "random":
            out["workload"] = self.kind
        if self.texts:
            out["texts"] = hashlib.sha256(repr(self.texts).encode()).hexdigest()[:16]
        for tenant in self.tenants:
            values = asdict(tenant)
            name = values.pop("name")
            out |= {f"tenant.{name}.{key}": value for key, value in values.items()}
        return out

    def slots(self, count: int, *, input_tokens: int, output_tokens: int, seed: int) -> list[Slot]:
        """The ``count`` requests of a run, in their order; lengths are those of the run.

        Raises UsageError where the numbers do not fit the workload.
        """
        plain = Slot(input_tokens, output_tokens)
        if self.trace:
            return _trace_slots(self.trace, count)
        if self.texts and count > len(self.texts):
            raise UsageError(f"there are {len(self.texts)} texts, not {count}; ask for fewer")
        if self.kind == "shared-prefix":
            return _prefix_slots(self, count, plain)
        if self.kind == "multi-turn":
            return _turn_slots(self, count, plain)
        if self.kind == "tenants":
            return _tenant_slots(self, count, plain, seed)
        return [plain] * count

    def to_dict(self) -> dict[str, Any]:
        """JSON form; the rows of a trace as lists."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        out["tenants"] = [asdict(t) for t in self.tenants]
        out["texts"] = list(self.texts)
        out["trace"] = [[r.arrival_s, r.prompt_tokens, r.output_tokens] for r in self.trace]
        return out

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Workload:
        """Inverse of ``to_dict``. Raises UsageError for an unknown field."""
        if unknown := sorted(set(raw) - {f.name for f in fields(cls)}):
            raise UsageError(f"the workload has unknown fields {unknown}")
        tenants = tuple(t if isinstance(t, Tenant) else Tenant(**t) for t in raw.get("tenants", ()))
        trace = tuple(r if isinstance(r, TraceRow) else TraceRow(*r) for r in raw.get("trace", ()))
        texts = tuple(raw.get("texts", ()))
        return cls(**{**raw, "tenants": tenants, "trace": trace, "texts": texts})


# Options that mean something only with one kind: (name, kind, least useful value).
_OWN = (
    ("prefix_tokens", "shared-prefix", 1),
    ("prefixes", "shared-prefix", 1),
    ("turns", "multi-turn", 2),
)


def _check_kind(workload: Workload) -> None:
    plain = {f.name: f.default for f in fields(Workload)}
    for name, kind, least in (*_OWN, ("think_s", "multi-turn", 0)):
        value = getattr(workload, name)
        if workload.kind == kind and value < least:
            raise UsageError(f"workload {kind} needs {name} of {least} or more, not {value!r}")
        if workload.kind != kind and value != plain[name]:
            raise UsageError(f"{name} belongs to workload {kind}, not to {workload.kind}")
    if (workload.kind == "tenants") != bool(workload.tenants):
        raise UsageError("workload tenants needs tenants, and no other has them")
    if workload.texts and (workload.kind != "random" or workload.trace):
        raise UsageError("texts are whole prompts; they go with random, and without a trace")
    if workload.trace and workload.kind != "random":
        raise UsageError(f"a trace has its own lengths; it goes with random, not {workload.kind}")


def _trace_slots(trace: Sequence[TraceRow], count: int) -> list[Slot]:
    """A reply of 0 tokens cannot be asked for: 1 is."""
    if count > len(trace):
        raise UsageError(f"the trace has {len(trace)} requests, not {count}; ask for fewer")
    sizes = [(r.prompt_tokens, max(1, r.output_tokens)) for r in trace[:count]]
    return [Slot(*size, labels=_lengths(*size)) for size in sizes]


def _lengths(input_tokens: int, output_tokens: int) -> dict[str, str | int]:
    """Labels that tell a request's own lengths, where they are not those of the run."""
    return {"input_tokens": input_tokens, "output_tokens": output_tokens}


def _require_room(prefix_tokens: int, input_tokens: int, whose: str) -> None:
    if prefix_tokens >= input_tokens:
        raise UsageError(
            f"a prefix of {prefix_tokens} tokens leaves nothing of the {input_tokens} input tokens "
            f"of {whose}; give more input tokens or a shorter prefix"
        )


def _prefix_slots(workload: Workload, count: int, plain: Slot) -> list[Slot]:
    size, groups = workload.prefix_tokens, workload.prefixes
    _require_room(size, plain.input_tokens, "a request")
    return [
        Slot(
            plain.input_tokens, plain.output_tokens, prefix=str(i % groups), prefix_tokens=size,
            labels={"prefix": i % groups, "shared_tokens": size if i >= groups else 0},
        )
        for i in range(count)
    ]  # fmt: skip


def _turn_slots(workload: Workload, count: int, plain: Slot) -> list[Slot]:
    turns = workload.turns
    if count % turns:
        down = count - count % turns
        near = " or ".join(str(n) for n in (down, down + turns) if n)
        raise UsageError(
            f"{count} requests are no whole conversations of {turns} turns; give {near}"
        )
    return [
        Slot(plain.input_tokens, plain.output_tokens,
             labels={"conversation": i // turns, "turn": i % turns + 1})
        for i in range(count)
    ]  # fmt: skip


def _tenant_slots(workload: Workload, count: int, plain: Slot, seed: int) -> list[Slot]:
    order = [
        t for t, n in zip(workload.tenants, counts(workload.tenants, count), strict=True)
        for _ in range(n)
    ]  # fmt: skip
    random.Random(f"tenants-{seed}").shuffle(order)
    seen: set[str] = set()
    out = []
    for tenant in order:
        size = tenant.input_tokens or plain.input_tokens
        _require_room(tenant.prefix_tokens, size, f"tenant {tenant.name}")
        shared = tenant.prefix_tokens if tenant.name in seen else 0
        seen.add(tenant.name)
        reply = tenant.output_tokens or plain.output_tokens
        labels = {"tenant": tenant.name, "shared_tokens": shared, **_lengths(size, reply)}
        out.append(
            Slot(size, reply, prefix=tenant.name, prefix_tokens=tenant.prefix_tokens, labels=labels)
        )
    return out


def counts(tenants: Sequence[Tenant], count: int) -> list[int]:
    """How many of ``count`` requests each tenant gets: by share, largest remainders first.

    Raises UsageError where one would get none.
    """
    total = sum(t.share for t in tenants)
    exact = [count * t.share / total for t in tenants]
    out = [math.floor(x) for x in exact]
    order = sorted(range(len(out)), key=lambda i: exact[i] - out[i], reverse=True)
    for i in order[: count - sum(out)]:
        out[i] += 1
    if 0 in out:
        name = tenants[out.index(0)].name
        raise UsageError(f"{count} requests leave none for tenant {name}; ask for more")
    return out
