"""Look at a log, a ``/metrics`` page, a record or a server, and say what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.diagnose.causes import found
from turbo_lab.diagnose.finding import Diagnosis, Finding, ranked
from turbo_lab.diagnose.log_rules import evidence_of, log_findings
from turbo_lab.diagnose.logscan import LogReading, scan_log
from turbo_lab.diagnose.page_rules import page_findings, replica_findings
from turbo_lab.diagnose.pages import Page, looks_like_page, parse_page
from turbo_lab.diagnose.record_rules import record_findings
from turbo_lab.diagnose.urls import UnreachableError, check_interval, read_url

__all__ = ["as_json", "diagnose", "read_url"]

HEAD_BYTES = 1 << 14
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

    A server that does not answer is a finding (``server_unreachable``), no error.

    Raises:
        UsageError: no target, an empty one, one that does not exist or is no file, or an interval
            that is no time.
        RecordError: a target that cannot be read.
    """
    if not targets or not all(str(target).strip() for target in targets):
        raise UsageError("Name a log, a /metrics page, a record or a URL; or use --interview.")
    check_interval(interval_s)
    findings: list[Finding] = []
    pages: list[Page] = []
    read, known, hints = [], True, []
    for target in map(str, targets):
        if target.startswith(("http://", "https://")):
            more, page = _of_url(target, interval_s)
            about: dict[str, Any] = {"target": target, "kind": "metrics"}
        else:
            more, about, page, hint = _of_file(Path(target))
            hints += [hint] if hint else []
            known = known and about["known"]
        pages += [page] if page else []
        findings += more
        read.append(about)
    findings += replica_findings(pages)
    collect = (*hints, *COLLECT) if not findings and (hints or not known) else ()
    return Diagnosis(findings=ranked(findings), known=known, collect=collect, read=tuple(read))


def _of_url(url: str, interval_s: float) -> tuple[list[Finding], Page | None]:
    try:
        page = read_url(url, interval_s=interval_s)
    except UnreachableError as error:
        proof = f"GET {error.address}: {error.reason}"
        return [found("server_unreachable", evidence=proof, where="its address", source=url)], None
    return page_findings(page), page


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
    if path.is_file():
        return path
    if not path.is_dir():
        raise UsageError(
            f"{path} is a pipe, a socket or a device, and may never end. Save it first: "
            f"timeout 60 cat {path} > server.log"
        )
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
    if not reading.bytes_read:
        return "the file is empty: the server wrote its log elsewhere (stderr, journal, container)"
    if not reading.trouble.count:
        return None
    seen = reading.root if reading.root.count else reading.trouble
    return f"no rule knows line {seen.number} ({evidence_of(seen.first)}); send it with its context"


def as_json(diagnosis: Diagnosis) -> str:
    """The report as JSON text."""
    return json.dumps(diagnosis.to_dict(), indent=1, ensure_ascii=False)
