"""From what a client saw to findings: statuses, refusals, breaks and waits.

A server's log and page know nothing of a connection that never came, and little of one that broke.
The client's timelines do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from turbo_lab.diagnose.causes import found
from turbo_lab.diagnose.finding import Finding
from turbo_lab.diagnose.page_rules import DEFAULT_LIMITS, Limits
from turbo_lab.diagnose.pages import Page
from turbo_lab.metrics import definitions
from turbo_lab.metrics.definitions import outcome
from turbo_lab.metrics.timeline import Timeline

# A client that takes so many times the server's own time is what is slow. Network and client on
# one machine take a few per cent; a proxy across a continent doubles a short reply.
SLOW_FACTOR, SLOW_S = 3.0, 0.1
NOT_SENT = "not sent"
TOO_LONG = re.compile(r"maximum (context|model) length|reduce the length|too long")
_STATUS = {401: "wrong_key", 403: "wrong_key", 429: "rate_limited"}
_BEGINNINGS = (
    ("cannot connect", "peer_unreachable"),
    ("no connection within", "peer_unreachable"),
    ("timed out", "request_timeouts"),
    ("the connection broke", "connection_broken"),
    ("truncated", "connection_broken"),
    ("no answer", "connection_broken"),
)


def client_findings(
    runs: Sequence[Timeline],
    *,
    server: Page | None = None,
    source: str = "client",
    limits: Limits = DEFAULT_LIMITS,
) -> list[Finding]:
    """All findings about one client's requests, the commonest failure first.

    Args:
        runs: the timelines, failed ones included.
        server: what the server's page counted over these requests and no others, for a comparison
            of the two clocks.
        source: name of the client's file.
        limits: a cause is named from ``failed_share`` of the requests on.
    """
    sent = [run for run in runs if not (run.error or "").startswith(NOT_SENT)]
    out = _failures(sent, source, limits)
    out += [f for f in (_cold(sent, source), _slow(sent, server, source)) if f is not None]
    return out


def failure_cause(run: Timeline) -> str | None:
    """Cause of one failed request; None for a good one."""
    state = outcome(run)
    if state.ok:
        return None
    text, status = run.error or state.reason, run.status_code
    if status in _STATUS:
        return _STATUS[status]
    if status is not None and 400 <= status < 500:
        return _refused(text.lower(), status)
    if status is not None and status >= 500:
        return "server_errors"
    named = (cause for start, cause in _BEGINNINGS if text.startswith(start))
    return next(named, "server_errors" if "stream" in text else "error_rate")


def _refused(text: str, status: int) -> str:
    if status == 404 and "model" in text:
        return "wrong_model_name"
    return "prompt_too_long" if TOO_LONG.search(text) else "bad_request_body"


def _failures(runs: Sequence[Timeline], source: str, limits: Limits) -> list[Finding]:
    groups: dict[str, list[Timeline]] = {}
    for run in runs:
        if cause := failure_cause(run):
            groups.setdefault(cause, []).append(run)
    out = []
    for cause, failed in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        if len(failed) < limits.failed_share * len(runs):
            continue
        words = failed[0].error or outcome(failed[0]).reason
        text = f"{len(failed)} of {len(runs)} requests: {' '.join(words.split())[:200]}"
        out.append(found(cause, evidence=text, where="outcome", source=source, count=len(failed)))
    return out


def _cold(runs: Sequence[Timeline], source: str) -> Finding | None:
    """The first requests were refused until the server was up, later ones never."""
    good = [run for run in runs if outcome(run).ok and run.sent_s is not None]
    good.sort(key=lambda run: run.sent_s or 0.0)
    waited = [len(run.attempts) > 1 for run in good]
    late = waited.index(False) if False in waited else len(good)
    if not late or late == len(good) or any(waited[late:]):
        return None
    first = good[0]
    tries, wait_s = len(first.attempts) - 1, definitions.ttft_s(first) or 0.0
    text = (
        f"the first request was refused {tries} times and had its first token after {wait_s:.1f} "
        f"s; {len(good) - late} later ones were taken at once"
    )
    return found("cold_start", evidence=text, where="attempts", source=source, count=late,
                 confidence="medium")  # fmt: skip


def _slow(runs: Sequence[Timeline], server: Page | None, source: str) -> Finding | None:
    """The client's clock against the server's, over the same requests."""
    theirs = server.mean("e2e") if server else None
    ours = [e2e for run in runs if outcome(run).ok and (e2e := definitions.e2e_s(run)) is not None]
    if not theirs or theirs[1] != len(ours) or len(ours) != len(runs):
        return None  # other requests are in the page: the means cannot be compared
    mean_s = sum(ours) / len(ours)
    if mean_s < SLOW_FACTOR * theirs[0] or mean_s - theirs[0] < SLOW_S:
        return None
    text = f"{mean_s:.2f} s end to end for the client, {theirs[0]:.2f} s for the server"
    return found("slow_client", evidence=text, where="e2e_s", source=source, count=len(ours))
