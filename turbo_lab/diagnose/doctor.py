"""Look at a log, a ``/metrics`` page, a record or a server, and say what is wrong with it."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.diagnose.finding import Diagnosis, Finding, ranked
from turbo_lab.diagnose.log_rules import evidence_of, log_findings
from turbo_lab.diagnose.logscan import LogReading, scan_log
from turbo_lab.diagnose.page_rules import difference, page_findings, replica_findings
from turbo_lab.diagnose.pages import Page, looks_like_page, parse_page
from turbo_lab.diagnose.record_rules import record_findings

HEAD_BYTES = 1 << 14
TIMEOUT_S = 10.0
COLLECT = (
    "the server's whole log from its start (stdout and stderr of all processes)",
    "the command line and the versions: turbo-lab env --json",
    "URL/metrics, twice, ten seconds apart, while it is slow",
    "resources: nvidia-smi, free -h, df -h, and dmesg -T | tail",
    "the smallest request that shows the fault: curl -i with its whole answer",
)


def diagnose(targets: Sequence[str | Path], *, interval_s: float = 2.0) -> Diagnosis:
    """Findings about logs, pages, records and running servers, together.

    Args:
        targets: paths of logs (plain, .gz), of saved ``/metrics`` pages and of records, or URLs
            of servers. Several pages are also compared with each other, as replicas.
        interval_s: seconds between the two readings of a URL's counters; 0 reads once.

    Raises:
        UsageError: no target, or a path that does not exist.
        RecordError: a target that cannot be read.
    """
    if not targets:
        raise UsageError("Name a log, a /metrics page, a record or a URL; or use --interview.")
    findings: list[Finding] = []
    pages: list[Page] = []
    read, known, hints = [], True, []
    for target in map(str, targets):
        if target.startswith(("http://", "https://")):
            page = read_url(target, interval_s=interval_s)
            more, about = page_findings(page), {"target": target, "kind": "metrics"}
            pages.append(page)
        else:
            more, about, page_of_file, hint = _of_file(Path(target))
            pages += [page_of_file] if page_of_file else []
            hints += [hint] if hint else []
            known = known and about["known"]
        findings += more
        read.append(about)
    findings += replica_findings(pages)
    collect = (*hints, *COLLECT) if not findings and (hints or not known) else ()
    return Diagnosis(findings=ranked(findings), known=known, collect=collect, read=tuple(read))


def read_url(url: str, *, interval_s: float = 2.0) -> Page:
    """The ``/metrics`` page of a server, as what changed between two readings.

    Where nothing happened between them, the page since the server's start is returned.
    Raises RecordError when the server does not answer with a page.
    """
    import time

    address = _metrics_address(url)
    first = parse_page(_get(address), source=url)
    if not first.is_server:
        raise RecordError(f"{address} has no metrics of an inference server.")
    if interval_s <= 0:
        return first
    time.sleep(interval_s)
    second = parse_page(_get(address), source=url)
    change = difference(first, second)
    moved = (change.total("generation_tokens") or 0) + (change.total("finished") or 0)
    return change if moved and change.mean("e2e") else second


def _metrics_address(url: str) -> str:
    """The address of the page: ``/metrics`` where the URL names no path. Raises UsageError."""
    try:
        parts = urllib.parse.urlsplit(url)
        if not parts.hostname or parts.port == 0 or any(c <= " " for c in url):
            raise ValueError("no host, port 0 or a blank")
    except ValueError as error:
        raise UsageError(
            f"{url!r} is no address ({error}). Give http://HOST:PORT, PORT from 1 to 65535."
        ) from error
    return url if parts.path not in ("", "/") else url.rstrip("/") + "/metrics"


def _get(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as reply:
            return reply.read().decode("utf-8", "replace")
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RecordError(
            f"{address} does not answer ({reason}). Is the server up? Give its log instead."
        ) from error


def _of_file(path: Path) -> tuple[list[Finding], dict[str, Any], Page | None, str | None]:
    """(findings, what was read, the page if it is one, what is missing) of one file."""
    path = _log_inside(path)
    name = path.name
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            if head.lstrip()[:1] == b"{" and b'"schema_version"' in head:
                return _of_record(path)
            if looks_like_page(head.decode("utf-8", "replace")):
                page = parse_page(path.read_text(encoding="utf-8", errors="replace"), source=name)
                about = {"target": name, "kind": "metrics", "known": page.is_server}
                return page_findings(page), about, page, None
            stream.seek(0)
            reading = scan_log(stream)
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}") from error
    findings = log_findings(reading, source=name)
    known = reading.server or bool(findings)
    about = {"target": name, "kind": "log", "known": known, "lines": reading.lines,
             "bytes": reading.bytes_read}  # fmt: skip
    return findings, about, None, None if findings else _unexplained(reading)


def _log_inside(path: Path) -> Path:
    """A run's folder stands for its record or its server's log."""
    if not path.exists():
        raise UsageError(f"{path} does not exist. Give a log, a page, a record or http://HOST:PORT")
    if not path.is_dir():
        return path
    for name in ("record.json", "server.log", "metrics.txt"):
        if (path / name).is_file():
            return path / name
    raise UsageError(f"{path} is a folder without record.json, server.log or metrics.txt")


def _of_record(path: Path) -> tuple[list[Finding], dict[str, Any], Page | None, str | None]:
    from turbo_lab.records import store

    try:
        record = store.load(path)
    except RecordError as error:
        raise RecordError(f"{path.name} is no whole record: {error}") from error
    about = {"target": path.name, "kind": "record", "known": True, "digest": record.digest}
    return record_findings(record, source=path.name), about, None, None


def _unexplained(reading: LogReading) -> str | None:
    """The first named error in a log that no rule knows; None for a quiet log."""
    if not reading.trouble.count:
        return None
    seen = reading.root if reading.root.count else reading.trouble
    return f"no rule knows line {seen.number} ({evidence_of(seen.first)}); send it with its context"


def as_json(diagnosis: Diagnosis) -> str:
    """The report as JSON text."""
    return json.dumps(diagnosis.to_dict(), indent=1, ensure_ascii=False)
