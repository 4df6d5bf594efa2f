"""A fault in numbers: what was counted while it lasted, and where a request's time went."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from turbo_lab.diagnose.injection.fault import Evidence
from turbo_lab.metrics import definitions
from turbo_lab.metrics.definitions import outcome


def figures(evidence: Evidence) -> dict[str, float | None]:
    """Numbers of one fault; None where its evidence has none.

    ``requests``, ``failed``, ``tries`` of the first request; from the client's clock ``ttft_s`` of
    the first request and ``client_s``, the mean end to end of the good ones; from the server's page
    ``server_s``, ``queue_s``, ``queue_share``, ``preemptions``, ``drafted`` and ``accepted``.
    """
    runs, page = evidence.runs, evidence.page
    good = [run for run in runs if outcome(run).ok]
    ends = [e2e for run in good if (e2e := definitions.e2e_s(run)) is not None]
    first = min(good, key=lambda run: run.sent_s or 0.0, default=None)
    e2e, queue = (page.mean("e2e"), page.mean("queue")) if page else (None, None)
    share = queue[0] / e2e[0] if queue and e2e and e2e[0] > 0 else None
    return {
        "requests": float(len(runs)),
        "failed": float(len(runs) - len(good)),
        "tries": float(len(first.attempts) or 1) if first else None,
        "ttft_s": definitions.ttft_s(first) if first else None,
        "client_s": fmean(ends) if ends else None,
        "server_s": e2e[0] if e2e else None,
        "queue_s": queue[0] if queue else None,
        "queue_share": share,
        "preemptions": page.total("preemptions") if page else None,
        "drafted": page.total("draft_tokens") if page else None,
        "accepted": page.total("accepted_tokens") if page else None,
    }


def time_split(numbers: Mapping[str, float | None]) -> dict[str, float] | None:
    """Mean seconds of a request by place: queue, engine, outside the server.

    None where one of the two clocks has no number.
    """
    client, server, queue = (numbers.get(k) for k in ("client_s", "server_s", "queue_s"))
    if client is None or server is None or queue is None:
        return None
    return {
        "queue": queue,
        "engine": max(0.0, server - queue),
        "outside the server": max(0.0, client - server),
    }
