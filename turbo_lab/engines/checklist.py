"""Is a server safe to leave running? Rows with proof, for a plan, for a running one, or for both.

Nothing is started and nothing is changed: files and sockets are read, and a running server is
asked with small requests that carry no key.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.safety.flags import flag_rows
from turbo_lab.engines.safety.live import address_of, live_rows
from turbo_lab.engines.safety.machine import (
    RunningProcess,
    listeners,
    log_rows,
    own_uid,
    process_of,
    root_row,
)
from turbo_lab.engines.safety.model import model_rows
from turbo_lab.engines.safety.nginx import proxy_row
from turbo_lab.engines.safety.plan import Plan, is_loopback
from turbo_lab.engines.safety.row import CHECKS, Check, Status, row

__all__ = ["CHECKS", "Check", "Status", "checklist", "failed"]


def checklist(
    args: VllmArgs | None = None,
    *,
    url: str | None = None,
    log: Path | None = None,
    proxy: Path | None = None,
    manifest: Path | None = None,
    burst: int = 0,
) -> tuple[Check, ...]:
    """One row for each id of ``CHECKS``, in its order.

    Args:
        args: arguments of a server, planned or running.
        url: root of a running server; what it answers goes before what ``args`` promise. Without
            ``args`` the command line is read from its process, where this machine allows that.
        log: the server's log, searched for keys and prompts.
        proxy: an nginx configuration that stands before the server.
        manifest: checksums of the weights, as ``sha256sum`` writes them.
        burst: requests sent at once to a running server to see its rate limit; 0 sends none.

    Raises:
        UsageError: neither ``args`` nor ``url``, or a file that cannot be read.
        EngineError: nothing answers at ``url``.
    """
    if args is None and url is None:
        raise UsageError("checklist needs args (a plan), url (a running server), or both")
    if burst < 0 or (burst and url is None):
        raise UsageError(f"burst is {burst}; allowed: 0 or more, and above 0 only with a url")
    process = _process(url) if url is not None else None
    plan = Plan.of_args(args) if args is not None else process.plan if process else None
    rows = {name: row(name, "unknown", _unseen(name)) for name in CHECKS}
    known: list[Check] = []
    if plan is not None:
        uid = process.uid if process else own_uid() if url is None else None
        known += [*flag_rows(plan), *model_rows(plan, manifest=manifest, uid=uid)]
    if plan is not None and url is None:
        known.append(root_row(own_uid(), running=False, exposed=plan.exposed))
        known.append(row("log_private", "ok", "turbo-lab serve makes its log with mode 600"))
    if proxy is not None or url is None:
        known.append(proxy_row(proxy, exposed=plan.exposed if plan else False))
    if url is not None:
        known += live_rows(url, burst=burst)
    known += log_rows(log) if log is not None else []
    for one in known:
        if one.status != "unknown" or rows[one.id].status == "unknown":
            rows[one.id] = one
    return tuple(rows.values())


def _unseen(check_id: str) -> str:
    if check_id.startswith("log_"):
        return "no log was named (--log FILE)"
    return "how the server was started could not be read; name the model and its flags"


def _process(url: str) -> RunningProcess | None:
    """The process behind a loopback address of this machine, where it can be seen."""
    at = address_of(url)
    return process_of(listeners(at.port)) if is_loopback(at.host) else None


def failed(rows: Iterable[Check]) -> bool:
    """True when any row failed; warnings and unknown rows do not count."""
    return any(one.status == "fail" for one in rows)
