"""From what a log showed to findings. Thresholds stand here, each with its reason."""

from __future__ import annotations

from dataclasses import replace

from turbo_lab.diagnose.causes import cause_named, found
from turbo_lab.diagnose.counts import Seen
from turbo_lab.diagnose.finding import Confidence, Finding
from turbo_lab.diagnose.lines import EVIDENCE_CHARACTERS, parse_line
from turbo_lab.diagnose.logscan import LogReading
from turbo_lab.records.redact import redact

# A burst fills the queue for one line; a shortage shows in two lines (ten seconds apart).
LINES_FOR_PRESSURE = 2
# Below this share, refused or broken requests are those of a scanner or a lone user.
SHARE_OF_REFUSED, SHARE_OF_LOST = 0.20, 0.05
FEWEST = 3
# Three silent load lines are half a minute without a token although requests run.
SILENT_LINES = 3
# Words that explain why requests were refused, so the bare status is not shown as well.
_EXPLAINS_400 = ("prompt_too_long", "chat_template_missing", "wrong_model_name")


def log_findings(reading: LogReading, *, source: str) -> list[Finding]:
    """All findings about one log. Symptoms are left out when their cause was found."""
    findings = _by_message(reading, source)
    seen = {finding.cause for finding in findings}
    findings += _by_load(reading, source) + _by_answers(reading, source, seen)
    return _without_symptoms(_merged(findings))


def evidence_of(line: bytes) -> str:
    """A line as proof: unwrapped, without secrets, of readable length."""
    parsed = parse_line(line[: 4 * EVIDENCE_CHARACTERS])
    head = " ".join(part for part in (parsed.process, parsed.level, parsed.time) if part)
    text = redact(f"{head}: {parsed.message}" if head else parsed.message)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= EVIDENCE_CHARACTERS else text[: EVIDENCE_CHARACTERS - 3] + "..."


def _finding(
    cause: str, seen: Seen, source: str, *, confidence: Confidence | None = None, note: str = ""
) -> Finding:
    text = evidence_of(seen.first)
    return found(
        cause,
        evidence=f"{text} ({note})" if note else text,
        where=f"line {seen.number}",
        source=source,
        count=seen.count,
        confidence=confidence,
    )


def _by_message(reading: LogReading, source: str) -> list[Finding]:
    findings = []
    for cause, rules in reading.messages.items():
        symptom = cause_named(cause).symptom or cause == "worker_killed"
        held = [
            seen
            for rule, seen in rules.items()
            # A server that is told to stop leaves errors of its dying parts; they are no fault.
            if seen.count - (seen.stopping if symptom else 0) >= rule.at_least
        ]
        if not held:
            continue
        first = min(held, key=lambda seen: seen.number)
        if cause_named(cause).symptom and reading.root.count:
            first = replace(reading.root, count=first.count)
        findings.append(_finding(cause, first, source))
    return findings


def _by_load(reading: LogReading, source: str) -> list[Finding]:
    load, out = reading.counts.load, []
    if load.queued.count >= LINES_FOR_PRESSURE:
        note = f"{load.queued.count} of {load.active} load lines, up to {load.most_waiting} waiting"
        out.append(_finding("queue_pressure", load.queued, source, note=note))
    elif load.flooded.count:
        out.append(_finding("queue_pressure", load.flooded, source, confidence="low"))
    if load.full.count and load.full.count >= 0.1 * load.active:
        out.append(_finding("kv_pressure", load.full, source))
    if load.swapped.count:
        out.append(_finding("cpu_offload_active", load.swapped, source))
    if load.preempted.count:
        sure: Confidence = "high" if load.preempted.count >= LINES_FOR_PRESSURE else "medium"
        out.append(_finding("preemption_pressure", load.preempted, source, confidence=sure))
    if load.slow.count >= SILENT_LINES and load.slow.count >= 0.5 * load.active:
        out.append(_finding("low_throughput", load.slow, source))
    if load.longest_still >= SILENT_LINES:
        out.append(_finding("engine_stuck", load.still, source))
    if reading.counts.poor_drafts.count > 0.5 * reading.counts.draft_lines:
        out.append(_finding("draft_rarely_accepted", reading.counts.poor_drafts, source))
    return out


def _by_answers(reading: LogReading, source: str, seen: set[str]) -> list[Finding]:
    c, out = reading.counts, []

    def notable(rows: Seen, total: int, share: float) -> bool:
        return bool(rows.count) and (rows.count >= share * total)

    if notable(c.unauthorised, c.answers, 0.05) or c.unauthorised.count >= FEWEST:
        out.append(_finding("wrong_key", c.unauthorised, source))
    if notable(c.not_found, c.posts, SHARE_OF_LOST):
        out.append(_finding("wrong_model_name", c.not_found, source))
    if c.limited.count:
        out.append(_finding("rate_limited", c.limited, source))
    if notable(c.broken, c.answers, 0.01):
        out.append(_finding("server_errors", c.broken, source))
    if c.refused.count >= FEWEST and notable(c.refused, c.posts, SHARE_OF_REFUSED) and not (
        seen.intersection(_EXPLAINS_400)
    ):  # fmt: skip
        out.append(_finding("bad_request_body", c.refused, source))
    if c.aborted.count >= FEWEST and notable(c.aborted, c.posts, SHARE_OF_LOST):
        out.append(_finding("clients_gave_up", c.aborted, source))
    if c.greedy.count and c.random.count:
        fewer = min(c.greedy, c.random, key=lambda rows: rows.count)
        note = f"{c.greedy.count} requests with temperature 0, {c.random.count} above"
        out.append(_finding("mixed_sampling", _settings(fewer), source, note=note))
    return out


def _settings(seen: Seen) -> Seen:
    """The settings of a request without its prompt, which may be private."""
    start = max(seen.first.rfind(b"SamplingParams("), 0)
    return Seen(count=seen.count, first=seen.first[start : start + 200], number=seen.number)


def _merged(findings: list[Finding]) -> list[Finding]:
    """One finding per cause: the surest, earliest one, with the largest count."""
    best: dict[str, Finding] = {}
    for one in findings:
        best.setdefault(one.cause, one)
    return list(best.values())


def _without_symptoms(findings: list[Finding]) -> list[Finding]:
    """Drop what follows from another finding: the dead engine after the error that killed it."""
    deep = [f for f in findings if _is_deep(f)]
    if deep:
        findings = [f for f in findings if not cause_named(f.cause).symptom]
    causes = {f.cause for f in deep}
    if any(_line(f) < _line(k) for k in findings if k.cause == "worker_killed" for f in deep):
        findings = [f for f in findings if f.cause != "worker_killed"]
    lines = {f.where for f in findings if f.cause != "not_supported_here"}
    findings = [f for f in findings if f.cause != "not_supported_here" or f.where not in lines]
    if "shared_memory_too_small" in causes:
        findings = [f for f in findings if f.cause != "disk_full"]
    return findings


def _is_deep(finding: Finding) -> bool:
    """A sure error of the server itself, told by a message; errors of requests are not."""
    row = cause_named(finding.cause)
    told = bool(row.messages) and row.family != "service" and finding.confidence == "high"
    return told and not row.symptom


def _line(finding: Finding) -> int:
    return int(finding.where.removeprefix("line "))
