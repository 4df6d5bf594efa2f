"""Look at a log, a ``/metrics`` page, a record, timelines or a server, and say what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.diagnose.causes import found
from turbo_lab.diagnose.client_rules import client_findings
from turbo_lab.diagnose.finding import Diagnosis, Finding, ranked
from turbo_lab.diagnose.log_rules import evidence_of, log_findings
from turbo_lab.diagnose.logscan import LogReading, scan_log
from turbo_lab.diagnose.page_rules import page_findings, replica_findings
from turbo_lab.diagnose.pages import Page, looks_like_page, parse_page
from turbo_lab.diagnose.record_rules import record_findings
from turbo_lab.diagnose.urls import UnreachableError, check_interval, read_url
from turbo_lab.experiment import run_folder
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.records.journal import read_rows

__all__ = ["as_json", "diagnose", "read_url"]

HEAD_BYTES = 1 << 14
# The first line of a run's journal, and of a file with one timeline a line.
_JOURNAL = re.compile(rb'\s*\{"kind": ?"header"')
_TIMELINE = re.compile(rb'\s*\{(?=[^\n]*"sent_s")(?=[^\n]*"status_code")(?=[^\n]*"chunks")')
# What stands for a folder: the client's own record first, else what the server left.
_OF_RUN = (run_folder.RECORD_NAME, run_folder.REQUESTS_NAME)
_OF_SERVER = ("server.log", "metrics.txt")
COLLECT = (
    "the server's whole log from its start (stdout and stderr of all processes)",
    "the command line and the versions: turbo-lab env --json",
    "URL/metrics, twice, ten seconds apart, while it is slow",
    "resources: nvidia-smi, free -h, df -h, and dmesg -T | tail",
    "the smallest request that shows the fault: curl -i with its whole answer",
)


def diagnose(targets: Sequence[str | Path], *, interval_s: float = 2.0) -> Diagnosis:
    """Findings about logs, pages, records, timelines and running servers, together.

    Args:
        targets: paths of logs (plain, .gz), of saved ``/metrics`` pages, of records, of run folders
            or of timelines (JSON lines: ``requests.jsonl`` of ``turbo-lab bench``, or one
            ``Timeline.to_dict()`` a line), or URLs of servers. Several pages are also compared with
            each other, as replicas.
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
            seen = [_of_url(target, interval_s)]
        else:
            seen = [_of_file(path) for path in _files_of(Path(target))]
        for one in seen:
            hints += [one.hint] if one.hint else []
            known = known and one.about.get("known", True)
            pages += [one.page] if one.page else []
            findings += one.findings
            read.append(one.about)
    findings += replica_findings(pages)
    collect = (*hints, *COLLECT) if not findings and (hints or not known) else ()
    return Diagnosis(findings=ranked(findings), known=known, collect=collect, read=tuple(read))


class _Seen(NamedTuple):
    """Findings in one target, what was read, the page if it is one, and what is missing."""

    findings: list[Finding]
    about: dict[str, Any]
    page: Page | None = None
    hint: str | None = None


def _of_url(url: str, interval_s: float) -> _Seen:
    about = {"target": url, "kind": "metrics"}
    try:
        page = read_url(url, interval_s=interval_s)
    except UnreachableError as error:
        proof = f"GET {error.address}: {error.reason}"
        row = found("server_unreachable", evidence=proof, where="its address", source=url)
        return _Seen([row], about)
    return _Seen(page_findings(page), about, page)


def _of_file(path: Path) -> _Seen:
    name = path.name
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            if _JOURNAL.match(head) or _TIMELINE.match(head):
                return _of_timelines(path, journal=bool(_JOURNAL.match(head)))
            if head.lstrip()[:1] == b"{" and b'"schema_version"' in head:
                return _of_record(path)
            if looks_like_page(head.decode("utf-8", "replace")):
                page = parse_page(path.read_text(encoding="utf-8", errors="replace"), source=name)
                about = {"target": name, "kind": "metrics", "known": page.is_server}
                return _Seen(page_findings(page), about, page)
            stream.seek(0)
            reading = scan_log(stream)
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}") from error
    findings = log_findings(reading, source=name)
    known = reading.server or bool(findings)
    about = {"target": name, "kind": "log", "known": known, "lines": reading.lines,
             "bytes": reading.bytes_read}  # fmt: skip
    return _Seen(findings, about, hint=None if findings else _unexplained(reading))


def _files_of(path: Path) -> list[Path]:
    """A run's folder stands for its record and its requests, a server's for its log or page."""
    if not path.exists():
        raise UsageError(f"{path} does not exist. Give a log, a page, a record or http://HOST:PORT")
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(
            f"{path} is a pipe, a socket or a device, and may never end. Save it first: "
            f"timeout 60 cat {path} > server.log"
        )
    run = [path / name for name in _OF_RUN if (path / name).is_file()]
    server = [path / name for name in _OF_SERVER if (path / name).is_file()]
    if not run and not server:
        names = ", ".join((*_OF_RUN, *_OF_SERVER))
        raise UsageError(f"{path} is a folder without any of {names}")
    return run or server[:1]


def _of_timelines(path: Path, *, journal: bool) -> _Seen:
    """What the client saw; a run that was cut off counts as far as it came."""
    try:
        if journal:
            runs = run_folder.read_run(path).ordered()
        else:
            runs = [Timeline.from_dict(row) for row in read_rows(path)]
        findings = client_findings(runs, source=path.name)
    except (TypeError, AttributeError) as error:
        raise RecordError(f"{path} holds a line that is no timeline: {error}") from error
    about = {"target": path.name, "kind": "timelines", "known": True, "requests": len(runs)}
    hint = None if runs else "no request had ended when this file was written"
    return _Seen(findings, about, hint=hint)


def _of_record(path: Path) -> _Seen:
    from turbo_lab.records import store

    try:
        record = store.load(path)
    except RecordError as error:
        raise RecordError(f"{path.name} is no whole record: {error}") from error
    about = {"target": path.name, "kind": "record", "known": True, "digest": record.digest}
    return _Seen(record_findings(record, source=path.name), about)


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
