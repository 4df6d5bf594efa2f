"""What one benchmark run does, as one frozen value: everything that decides its numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.experiment.metric_names import SLO_NAMES, metric_name
from turbo_lab.records.digest import digest_of
from turbo_lab.workload import arrivals
from turbo_lab.workload.request import PATHS
from turbo_lab.workload.shape import Slot, Workload

Scalar = str | int | float | bool | None
KEY = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]*$")
DEFAULT_TIMEOUT_S = 120.0
MAX_REQUESTS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """One run against one server.

    Attributes:
        model: name in the requests.
        requests: how many are measured.
        rate_req_s: open loop, requests per second by the schedule (conversations that begin, where
            the workload has turns); or
        concurrency: closed loop, users who each wait for their reply. Exactly one of the two, or
            none where the workload's trace has the arrivals.
        arrivals: ``poisson``, ``constant`` or ``gamma:SHAPE`` (open loop).
        input_tokens: prompt length; exact with a tokenizer, else calibrated on the server's counts.
            Of a later turn it is the new message's.
        output_tokens: reply length; enforced with ``ignore_eos`` where the server takes it.
        endpoint: ``chat`` or ``completions``.
        seed: schedule and prompt words.
        prompt_salt: further seed of the words, another one for every run by default, so that no
            repeat meets its own prompts in the server's prefix cache.
        slo: objective name to seconds.
        primary_metric: named before the run, so that it cannot be chosen after it.
        warmup: requests before the measurement, never with a measured prompt.
        timeout_s: limit of one request.
        tokenizer: folder with tokenizer.json, for exact prompt lengths.
        declared: further variables that the caller knows of the server (``dtype=bf16``).
        workload: what the prompts share, turns, tenants, or a trace; plain by default.
        retries: further tries of a request that was refused before any token; 0 by default.
    """

    model: str
    requests: int = 100
    rate_req_s: float | None = None
    concurrency: int | None = None
    arrivals: str = "poisson"
    input_tokens: int = 128
    output_tokens: int = 64
    endpoint: str = "chat"
    seed: int = 0
    prompt_salt: int = 0
    slo: Mapping[str, float] = field(default_factory=dict)
    primary_metric: str | None = None
    warmup: int = 4
    timeout_s: float = DEFAULT_TIMEOUT_S
    tokenizer: str | None = None
    declared: Mapping[str, Scalar] = field(default_factory=dict)
    workload: Workload = field(default_factory=Workload)
    retries: int = 0

    def __post_init__(self) -> None:
        """Refuse contradictions before a server is asked anything. Plain data is a workload too."""
        if isinstance(self.workload, Mapping):
            object.__setattr__(self, "workload", Workload.from_dict(self.workload))
        _check_load(self)
        _check_counts(self)
        self.slots()
        if self.primary_metric is not None:
            metric_name(self.primary_metric)
        for name, limit in self.slo.items():
            if name not in SLO_NAMES:
                raise UsageError(f"objective {name!r}.{did_you_mean(name, list(SLO_NAMES))}")
            if not 0 < limit < math.inf:
                raise UsageError(f"the limit of {name} is {limit!r} s; it must be above 0")
        for name in self.declared:
            taken = self.__dataclass_fields__.keys() | self.workload.variables().keys()
            if not KEY.match(name) or name in taken:
                raise UsageError(
                    f"variable {name!r} cannot be declared: names are letters, digits, '.', '_' "
                    "and '-', and the run's own settings have their options"
                )

    @property
    def starts(self) -> int:
        """How many conversations there are; requests, where each is one of its own."""
        return self.requests // self.workload.turns

    def slots(self) -> list[Slot]:
        """The requests to be made, with their lengths and memberships."""
        return self.workload.slots(
            self.requests, input_tokens=self.input_tokens, output_tokens=self.output_tokens,
            seed=self.seed,
        )  # fmt: skip

    def schedule_s(self) -> arrivals.Schedule | None:
        """When each conversation begins, in seconds from the start; None for a closed loop."""
        if self.workload.trace:
            times = [row.arrival_s for row in self.workload.trace[: self.requests]]
            return arrivals.trace(times, speed=self.workload.trace_speed)
        if self.rate_req_s is None:
            return None
        kind, _, shape = self.arrivals.partition(":")
        if kind == "constant":
            return arrivals.constant(self.starts, rate_per_s=self.rate_req_s)
        return arrivals.gamma(
            self.starts, rate_per_s=self.rate_req_s, shape=float(shape or 1.0), seed=self.seed
        )

    def request_rate(self) -> float | None:
        """Requests per second that the schedule asks for, all turns; None for a closed loop."""
        if self.rate_req_s is not None:
            return self.rate_req_s * self.workload.turns
        schedule = self.schedule_s()
        return arrivals.rate_per_s(schedule) if schedule else None

    def variables(self) -> dict[str, Any]:
        """The settings as a record keeps them; two runs may differ in one of these.

        What a plain run does not have (turns, tenants, a trace, retries) is not in its variables,
        so that its records stay comparable with older ones.
        """
        left_out = ("declared", "prompt_salt", "slo", "workload", "retries")
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        limits = {f"slo.{name}": limit for name, limit in self.slo.items()}
        if self.rate_req_s is None:
            own["arrivals"] = None
        if self.workload.trace:
            own |= {"arrivals": "trace", "input_tokens": None, "output_tokens": None}
        if self.workload.texts:
            own["input_tokens"] = None
        return {**own, **self._further(), **limits, **self.declared}

    def _further(self) -> dict[str, Any]:
        """Settings beyond the plain run."""
        out = self.workload.variables()
        if self.workload.trace:
            out["trace_rows"] = digest_of(self.workload.to_dict()["trace"][: self.requests])
        return out | ({"retries": self.retries} if self.retries else {})

    def shape_digest(self) -> str:
        """Digest of the work that is asked for: lengths, arrivals, seed; not the single words."""
        names = (
            "requests", "rate_req_s", "concurrency", "arrivals", "input_tokens", "output_tokens",
            "endpoint", "seed",
        )  # fmt: skip
        values = self.variables()
        return digest_of({**{name: values[name] for name in names}, **self._further()})

    def digest(self) -> str:
        """Digest of the whole plan: a run resumes only under an equal one."""
        return digest_of({**self.variables(), "prompt_salt": self.prompt_salt})

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**plain, "slo": dict(self.slo), "declared": dict(self.declared),
                "workload": self.workload.to_dict()}  # fmt: skip

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> BenchPlan:
        """Inverse of ``to_dict``. Raises UsageError for an unknown field."""
        if unknown := sorted(set(raw) - set(cls.__dataclass_fields__)):
            raise UsageError(f"the plan has unknown fields {unknown}")
        return cls(**raw)


def _check_load(plan: BenchPlan) -> None:
    rate, users = plan.rate_req_s, plan.concurrency
    if plan.workload.trace:
        if rate is not None or users is not None:
            raise UsageError("a trace has its own arrivals; give no --rate and no --concurrency")
        return
    if (rate is None) == (users is None):
        raise UsageError(
            "give exactly one of --rate R (open loop, R requests per second) and "
            "--concurrency C (closed loop, C users who wait for their replies), or --trace FILE"
        )
    if rate is not None and not 0 < rate < math.inf:
        raise UsageError(f"the rate is {rate!r}; it must be above 0 and finite")
    if users is not None and users < 1:
        raise UsageError(f"concurrency is {users}, it must be at least 1")
    kind, _, shape = plan.arrivals.partition(":")
    known = ("poisson", "constant", "gamma")
    if kind not in known or (kind == "gamma") != bool(shape):
        raise UsageError(
            f"arrivals is {plan.arrivals!r}. Allowed: poisson, constant, gamma:SHAPE "
            "(shape 1 is Poisson, below 1 is burstier)"
        )
    if shape:
        try:
            good = 0 < float(shape) < math.inf
        except ValueError:
            good = False
        if not good:
            raise UsageError(f"the gamma shape is {shape!r}; it must be a number above 0")


def _check_counts(plan: BenchPlan) -> None:
    for name, least in (("requests", 1), ("input_tokens", 1), ("output_tokens", 1), ("warmup", 0),
                        ("retries", 0)):  # fmt: skip
        value = getattr(plan, name)
        if value < least:
            raise UsageError(f"{name} is {value}, it must be at least {least}")
    if plan.requests > MAX_REQUESTS:
        raise UsageError(f"requests is {plan.requests}; at most {MAX_REQUESTS:,} in one run")
    if not 0 < plan.timeout_s < math.inf:
        raise UsageError(f"timeout_s is {plan.timeout_s!r}; it must be above 0 and finite")
    if plan.endpoint not in PATHS:
        raise UsageError(f"endpoint is {plan.endpoint!r}.{did_you_mean(plan.endpoint, [*PATHS])}")


def parse_pairs(words: Sequence[str], *, option: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` to a dict. Raises UsageError for a word without ``=`` or a double name."""
    out: dict[str, str] = {}
    for text in words:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(f"{option} {text!r} is not NAME=VALUE")
        if name.strip() in out:
            raise UsageError(f"{option} gives {name.strip()!r} twice")
        out[name.strip()] = value.strip()
    return out


def parse_scalar(text: str) -> Scalar:
    """``true``, ``null``, numbers and everything else as text."""
    words: dict[str, Scalar] = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text
