"""Fetching public traces: size and licence are told first, a broken download goes on, and only a
file with the promised digest gets its final name.

Where no digest is published (``checksum_from = "unknown"``), the first download must be asked for
with ``trust_first``; its digest is kept beside the file, and later downloads must agree with it.
"""

from __future__ import annotations

import hashlib
import http.client
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import urlsplit

from turbo_lab.core import host
from turbo_lab.core.errors import DownloadError, UsageError, did_you_mean
from turbo_lab.core.writing import writing_alone

PIECE = 1 << 20
TIMEOUT_S = 30.0
Report = Callable[[str], None]


@dataclass(frozen=True)
class TraceSource:
    """One public trace. ``bytes`` and ``requests`` are None where they are not known.

    ``checksum_from``: who vouches for ``sha256`` (see ``data/traces/sources.toml``).
    """

    name: str
    title: str
    format: str
    url: str
    licence: str
    sha256: str
    checksum_from: str
    bytes: int | None = None
    requests: int | None = None

    @property
    def file(self) -> str:
        """Its file name: the name here, with the ending of the original."""
        return self.name + Path(urlsplit(self.url).path).suffix

    def describe(self) -> str:
        """What a reader should know before it is fetched."""
        size = "size not known" if self.bytes is None else f"{self.bytes / 1e6:.1f} MB"
        count = "" if self.requests is None else f", {self.requests:,} requests"
        digest = f"sha256 {self.sha256[:12]}... (from: {self.checksum_from})" if self.sha256 else (
            "sha256 not published"
        )  # fmt: skip
        return f"{self.title}: {size}{count}, licence {self.licence}, {digest}\n  {self.url}"


def sources_file() -> Path:
    """Where the sources are listed."""
    return host.repository_root() / "data" / "traces" / "sources.toml"


def trace_sources(path: Path | None = None) -> dict[str, TraceSource]:
    """All sources by name. Raises UsageError for a damaged list."""
    path = path or sources_file()
    known = {f.name for f in fields(TraceSource)}
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8"))
        found = {name: TraceSource(name=name, **row) for name, row in rows.items()}
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{path} is damaged: {error}. Fields: {sorted(known)}") from error
    return found


def trace_source(name: str) -> TraceSource:
    """One source. Raises UsageError naming the known ones."""
    found = trace_sources()
    if name not in found:
        raise UsageError(f"there is no public trace {name!r}.{did_you_mean(name, list(found))}")
    return found[name]


def fetch_trace(
    source: str | TraceSource,
    *,
    folder: Path | None = None,
    trust_first: bool = False,
    report: Report = print,
) -> Path:
    """Bring a trace to ``folder`` (default: the cache) and return its path; a good one stays.

    Args:
        source: a name of ``data/traces/sources.toml``.
        folder: where to keep it.
        trust_first: accept a file whose digest nobody published; it is printed and kept.
        report: gets size, licence and progress as lines of text.

    Raises:
        UsageError: an unknown name, or a file without a digest that was not asked for.
        DownloadError: the network, or a file that is not the promised one.
        EngineError: the disk refuses.
    """
    if isinstance(source, str):
        source = trace_source(source)
    folder = folder or host.cache_folder() / "traces"
    report(source.describe())
    doing = f"keep the trace in {folder}"
    room = "1 GB" if source.bytes is None else f"{source.bytes / 1e6:.0f} MB"
    with writing_alone(folder, name=source.name, doing=doing, room=room):
        return _fetch_alone(source, folder, trust_first, report)


def _fetch_alone(source: TraceSource, folder: Path, trust_first: bool, report: Report) -> Path:
    target, noted = folder / source.file, folder / f"{source.file}.sha256"
    wanted = source.sha256 or (noted.read_text().split()[0] if noted.is_file() else "")
    if not wanted and not trust_first:
        raise UsageError(
            f"nobody published a digest of {source.name}, so it cannot be checked. Ask to trust "
            "the first download (--trust-first); its digest is printed and kept for later ones."
        )
    if target.is_file() and wanted and _sha256(target) == wanted:
        report(f"{target} is there already, and its digest is right")
        return target
    partial = folder / f".{source.file}.partial"
    _download(source, partial, report)
    found = _sha256(partial)
    if wanted and found != wanted:
        partial.unlink()
        raise DownloadError(
            f"{source.url} gave a file with sha256 {found}, not the promised {wanted}. It was "
            "thrown away. Try again; if it stays so, the publisher has changed the file."
        )
    if not wanted:
        report(f"first download, trusted as asked: sha256 {found}")
        noted.write_text(f"{found}  {source.file}\n")
    partial.replace(target)
    report(f"{target}: {target.stat().st_size:,} bytes, sha256 {found[:12]}...")
    return target


def _download(source: TraceSource, partial: Path, report: Report) -> None:
    """Bring the file, going on where an earlier try broke off."""
    have = partial.stat().st_size if partial.is_file() else 0
    if source.bytes is not None and have == source.bytes:
        return
    headers = {"User-Agent": "turbo-lab", "Accept-Encoding": "identity"}
    if 0 < have < (source.bytes or have + 1):
        headers["Range"] = f"bytes={have}-"
        report(f"going on at byte {have:,}")
    request = urllib.request.Request(source.url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            goes_on = reply.status == http.client.PARTIAL_CONTENT and "Range" in headers
            _receive(reply, source, partial, start=have if goes_on else 0)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            partial.unlink(missing_ok=True)
        raise DownloadError(f"{source.url} answered {error.code} {error.reason}.") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        raise _broken(source, partial, str(getattr(error, "reason", error))) from error


def _receive(
    reply: http.client.HTTPResponse, source: TraceSource, partial: Path, *, start: int
) -> None:
    """Write what comes, from byte ``start``; more than promised is refused, less is broken off."""
    length = reply.headers.get("Content-Length")
    total = start + int(length) if length else None
    done = start
    with partial.open("r+b" if start else "wb") as file:
        file.seek(start)
        while piece := _read(reply, source, partial):
            done += len(piece)
            if source.bytes is not None and done > source.bytes:
                file.close()
                partial.unlink()
                raise DownloadError(
                    f"{source.url} gave more than the promised {source.bytes:,} bytes."
                )
            file.write(piece)
        file.truncate()
    expected = source.bytes if source.bytes is not None else total
    if expected is not None and done < expected:
        raise _broken(source, partial, f"it ended after {done:,} of {expected:,} bytes")


def _read(reply: http.client.HTTPResponse, source: TraceSource, partial: Path) -> bytes:
    """A piece; a network error here is no disk error, though both are OSErrors."""
    try:
        return reply.read(PIECE)
    except (OSError, http.client.HTTPException) as error:
        raise _broken(source, partial, str(error)) from error


def _broken(source: TraceSource, partial: Path, reason: str) -> DownloadError:
    have = partial.stat().st_size if partial.is_file() else 0
    kept = f" {have:,} bytes are kept: run it again to go on." if have else " Run it again."
    return DownloadError(f"{source.url} could not be fetched: {reason}.{kept}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
