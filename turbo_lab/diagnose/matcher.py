"""Which messages of the table stand in a line: one pass, with a memory of the lines' templates.

Logs repeat themselves: lines that differ only in digits share a template, and what a template can
mean is looked up once. So most lines of a long log cost one dictionary look-up.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from turbo_lab.diagnose.causes import Cause, Message, Phase
from turbo_lab.diagnose.prefilter import Prefilter

TEMPLATES_KEPT = 4096
Groups = tuple[tuple[bytes, tuple[bytes, ...]], ...]
_DIGITS = b"0123456789"
# Control characters other than tab and escape; a text line holds none, junk holds many.
CONTROL = bytes(c for c in range(32) if c not in (9, 13, 27)) + b"\x7f"
JUNK_SHARE = 0.03

ABORTED = re.compile(rb"aborted request|request \S+ aborted|client disconnected")
QUIET_LEVEL = re.compile(rb"\b(?:info|warning|debug)\b")
NAMED_ERROR = re.compile(rb"(?:^|[\s.\]'])[a-z_]*(?:error|exception)[a-z_]*(?: '|: )\S")
READY = (b"application startup complete", b"uvicorn running on")
STARTING = (b"vllm api server version", b"initializing an llm engine", b"initializing a v",
            b"starting to load model", b"waiting for application startup")  # fmt: skip
STOPPING = (b"shutdown triggered", b"shutting down fastapi", b"received signal=sigterm",
            b"received signal=sigint", b"signalling http server shutdown",
            b"    shutting down")  # fmt: skip
# Words by which an inference server's log is known, whether it is healthy or not.
SERVER = (b"vllm", b"uvicorn", b"engine", b"/v1/", b"nccl", b"application startup", b"sglang",
          b"torch", b"raylet", b"[shutdown]", b"avg prompt throughput")  # fmt: skip
# Answers other than 200, as uvicorn writes them: plain, escaped in JSON, and in colours.
REFUSED = tuple(
    text % status
    for status in (b"400", b"401", b"403", b"404", b"422", b"429", b"500", b"502", b"503", b"504")
    for text in (b'1.1" %s', b'1.0" %s', b'1.1\\" %s', b"[31m%s ", b"[91m%s ")
)
# Lines of the level "error", as vLLM and uvicorn write it before the time or the message.
LEVELS = (
    b" error 0",
    b" error 1",
    b"\nerror 0",
    b"\nerror 1",
    b"error:  ",
    b"traceback (most recent",
)
# Other lines that must be looked at: errors by name, load, requests, aborted ones.
OTHERS = (
    *READY, *STARTING, *STOPPING, *REFUSED, b"error: ", b"errorgroup: ", b"exception: ",
    b"fatal: ", b"fatal error", b"prompt throughput", b"draft acceptance rate",
    b"received request ", b"aborted request", b" aborted", b"client disconnected",
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One message, ready to be compared with a lower-case line."""

    cause: str
    find: bytes
    match: re.Pattern[bytes] | None
    but_not: re.Pattern[bytes] | None
    phase: Phase | None
    at_least: int

    def holds(self, line: bytes, phase: str) -> bool:
        """True when the line (lower case, with its digits) says so in this phase."""
        if self.phase is not None and self.phase != phase:
            return False
        if self.match is not None and not self.match.search(line):
            return False
        return self.but_not is None or not self.but_not.search(line)


@dataclass(frozen=True)
class Template:
    """What lines of one shape can mean."""

    rules: tuple[Rule, ...] = ()
    phase: str | None = None
    error: bool = False
    named_error: bool = False
    aborted: bool = False
    load: bool = False
    drafts: bool = False
    number: int = 0
    life: bool = False  # phase, load, drafts or aborted: more than a message or an error


_NOTHING = Template()


class Matcher:
    """Finds what a line can mean. Keeps at most TEMPLATES_KEPT templates."""

    def __init__(self, causes: tuple[Cause, ...]) -> None:
        self._by_find, self._groups, self.prefilter, self.calm = _prepared(causes)
        self._made = 0
        self._known: dict[bytes, Template | None] = {}

    def names_a_server(self, lower: bytes) -> bool:
        """True when a block holds a word by which a server's log is known."""
        return any(word in lower for word in SERVER)

    def template(self, lower: bytes) -> Template | None:
        """What lines of this shape can mean; None for nothing. ``lower`` is in lower case."""
        key = lower.translate(None, _DIGITS)
        try:
            return self._known[key]
        except KeyError:
            return self._look_up(key)

    def _look_up(self, key: bytes) -> Template | None:
        if len(self._known) >= TEMPLATES_KEPT:
            self._known.clear()
        one = None
        clean = key.translate(None, CONTROL)
        if len(key) - len(clean) <= JUNK_SHARE * len(key):
            one = self._meaning(clean)
        self._known[key] = one
        return one

    def _meaning(self, line: bytes) -> Template | None:
        found = [
            rule
            for fragment, literals in self._groups
            if fragment in line
            for literal in literals
            if literal in line
            for rule in self._by_find[literal]
        ]
        words = any(word in line for word in (b"rror", b"xception", b"fatal", b"traceback"))
        error = words and not QUIET_LEVEL.search(line[:120])
        one = Template(
            rules=tuple(found),
            phase=_phase(line),
            error=error,
            named_error=error and bool(NAMED_ERROR.search(line)),
            aborted=b"abort" in line or b"disconnect" in line,
            load=b"prompt throughput" in line,
            drafts=b"draft acceptance rate" in line,
        )
        if one == _NOTHING:
            return None
        self._made += 1
        life = bool(one.phase or one.aborted or one.load or one.drafts)
        return replace(one, number=self._made, life=life)


@functools.cache
def _prepared(
    causes: tuple[Cause, ...],
) -> tuple[Mapping[bytes, list[Rule]], Groups, Prefilter, Prefilter]:
    """The rules by their literals, these in groups, and the prefilters; made once per table.

    The second prefilter passes over lines that only have the level "error".
    """
    by_find: dict[bytes, list[Rule]] = {}
    for cause in causes:
        for row in cause.messages:
            rule = _rule(cause.cause, row)
            by_find.setdefault(rule.find, []).append(rule)
    calm = Prefilter([*by_find, *OTHERS])
    return by_find, _grouped(sorted(by_find)), Prefilter([*by_find, *OTHERS, *LEVELS]), calm


def _phase(line: bytes) -> str | None:
    for phase, words in (("serving", READY), ("stopping", STOPPING), ("start", STARTING)):
        if any(word in line for word in words):
            return phase
    return None


def _grouped(literals: list[bytes]) -> Groups:
    """Literals by a shared fragment, so that one look tells that none of them is in a line."""
    left, groups = set(literals), []
    while left:
        counts: dict[bytes, int] = {}
        for literal in left:
            for part in {literal[i : i + 4] for i in range(max(1, len(literal) - 3))}:
                counts[part] = counts.get(part, 0) + 1
        best = max(sorted(counts), key=lambda part: counts[part])
        members = tuple(sorted(literal for literal in left if best in literal))
        groups.append((best, members))
        left.difference_update(members)
    return tuple(groups)


def _rule(cause: str, row: Message) -> Rule:
    def compiled(text: str | None) -> re.Pattern[bytes] | None:
        return re.compile(text.encode()) if text else None

    return Rule(
        cause=cause,
        find=row.find.encode(),
        match=compiled(row.match),
        but_not=compiled(row.but_not),
        phase=row.phase,
        at_least=row.at_least,
    )
