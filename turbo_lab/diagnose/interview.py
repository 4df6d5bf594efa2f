"""The guided order of the two sources, as questions.

The symptom is asked first. Then comes the general order (input, environment, parameters, code), or
for a slow server the order log, resources, smallest request, configuration; what hangs is looked at
in the resources first. Each step says what to look at and how; an
answer that names a fault ends the walk with the causes that belong to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.diagnose.causes import Cause, list_causes

SYMPTOMS = {
    "error": "it stops with an error, at the start or later (read the end of the log first)",
    "stuck": "it hangs, or gives no output",
    "slow": "it answers, but slowly",
    "wrong": "the output is wrong, or differs from run to run",
    "refused": "requests are refused",
}


@dataclass(frozen=True)
class Step:
    """One look: what to check, with which command, and the sources' rows that a "yes" points to."""

    name: str
    question: str
    look: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Walk:
    """The result: the steps that were asked, and the causes that fit the first "yes"."""

    symptom: str
    asked: tuple[Step, ...]
    found: Step | None
    causes: tuple[Cause, ...]


INPUT = Step(
    "input",
    "Is an input file or request unusual (format, encoding, path, size)?",
    "file NAME; head -c 200 NAME; count the prompt's tokens with /tokenize",
    ("b14-input", "b8-name-collision"),
)
ENVIRONMENT = Step(
    "environment",
    "Did versions, rights, disk, memory, ports or the host change?",
    "turbo-lab env; df -h; free -h; ss -ltnp; pip check",
    ("b15-environment",),
)
PARAMETERS = Step(
    "parameters",
    "Was a setting changed (concurrency, batch, time-outs, model path, parallel sizes)?",
    "compare the line 'non-default args' of the last good and of this start",
    ("b16-parameters", "b6-timeout"),
)
CODE = Step(
    "code",
    "Does the smallest request fail with the same release elsewhere too?",
    "one prompt, 8 tokens, temperature 0, --enforce-eager; then the release notes",
    ("b17-code", "b18-stuck"),
)
LOG = Step(
    "log",
    "Does the log show errors, preemptions, a full KV cache or waiting requests?",
    "turbo-lab doctor server.log; when a process is gone its last lines tell most",
    ("a3-tpot-under-load", "b4-eviction", "b5-queue"),
)
RESOURCES = Step(
    "resources",
    "Is a card, the memory, the disk or the network full, or idle although requests run?",
    "turbo-lab doctor URL; nvidia-smi dmon; free -h; for several hosts also NIC, MTU and bandwidth",
    ("b2-offload", "b3-fragmentation", "a6-communication-share", "b11-bandwidth", "b12-mtu"),
)
SMALLEST = Step(
    "smallest request",
    "Is one short request alone slow as well, also the second time?",
    "send it twice: only the first slow means cold start; both slow means machine or model",
    ("a2-first-request-slow", "b1-out-of-memory"),
)
CONFIGURATION = Step(
    "configuration",
    "Does it go away when one setting is put back (speculation, KV format, parallel sizes)?",
    "change one thing at a time, three runs each, compare medians: turbo-lab compare",
    ("a5-slower-with-speculation", "a4-quality-after-kv-quantisation", "b16-parameters"),
)
SAMPLING = Step(
    "configuration",
    "Do the requests use sampling, another seed, speculation or a quantised cache?",
    "repeat with temperature 0 and a fixed seed, alone and in a batch",
    ("a7-results-differ", "a4-quality-after-kv-quantisation"),
)

ORDERS: dict[str, tuple[Step, ...]] = {
    "error": (INPUT, ENVIRONMENT, PARAMETERS, CODE),
    "stuck": (RESOURCES, INPUT, ENVIRONMENT, PARAMETERS, CODE),
    "slow": (LOG, RESOURCES, SMALLEST, CONFIGURATION),
    "wrong": (INPUT, ENVIRONMENT, SAMPLING, PARAMETERS, CODE),
    "refused": (INPUT, ENVIRONMENT, PARAMETERS, CODE),
}


def order_for(symptom: str) -> tuple[Step, ...]:
    """The steps for a symptom, in order. Raises UsageError for an unknown one."""
    if symptom not in ORDERS:
        raise UsageError(f"symptom {symptom!r}.{did_you_mean(symptom, [*ORDERS])}")
    return ORDERS[symptom]


def causes_of(step: Step) -> tuple[Cause, ...]:
    """Causes of the table that belong to the rows of a step."""
    return tuple(cause for cause in list_causes() if set(step.rows) & set(cause.rows))


def walk(symptom: str, *, says_yes: Callable[[Step], bool]) -> Walk:
    """Ask step by step until one is answered with yes; the order is kept, none is skipped."""
    asked: list[Step] = []
    for step in order_for(symptom):
        asked.append(step)
        if says_yes(step):
            return Walk(symptom, tuple(asked), step, causes_of(step))
    return Walk(symptom, tuple(asked), None, ())
