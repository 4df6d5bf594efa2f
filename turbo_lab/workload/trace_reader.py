"""Reading traces row by row: a week of traffic needs no more memory than a minute of it."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.trace_formats import BadValueError, TraceFormat, find_format
from turbo_lab.workload.trace_request import TraceRequest

LONGEST_LINE = 16 << 20  # characters; the longest prompts of Qwen-Bailian need 100,000
_SHOWN = 80


@dataclass
class Skipped:
    """Rows of a file that are no requests (a prompt of no token), in the latest reading of it."""

    rows: int = 0


@dataclass(frozen=True)
class TraceFile:
    """A trace on disk; every iteration reads it anew, row by row, in constant memory.

    Times are moved so that the first request comes at 0. Files may be gzipped (``.gz``).

    Attributes:
        path: the file.
        format: a name of ``trace_formats.FORMAT_NAMES``; ``auto`` goes by the columns.
        sort: put an unsorted trace in order of arrival (it is then read into memory as a whole).
        limit: read only so many requests, from the start of the file.
        skipped: rows that were left out while it was read.
    """

    path: Path
    format: str = "auto"
    sort: bool = False
    limit: int | None = None
    skipped: Skipped = field(default_factory=Skipped, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse a limit that leaves no request."""
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"limit is {self.limit}; allowed: 1 or more requests, or none at all")

    def __iter__(self) -> Iterator[TraceRequest]:
        """The requests in order. Raises UsageError naming file, line, value and what is allowed."""
        rows = self._sorted() if self.sort else self._in_order()
        first = next(rows, None)
        if first is None:
            told = f" ({self.skipped.rows} rows without a prompt)" if self.skipped.rows else ""
            raise UsageError(f"{self.path} has no requests{told}.")
        start_s = first.arrival_s
        yield replace(first, arrival_s=0.0)
        for row in rows:
            yield TraceRequest(
                row.arrival_s - start_s, row.input_tokens, row.output_tokens, row.block_ids,
                row.block_tokens, row.tenant, row.priority, row.session,
            )  # fmt: skip

    def detected(self) -> TraceFormat:
        """The format that this file is read in. Raises UsageError."""
        with _Readable(self.path) as file:
            return _Rows(self.path, self.format, file).format

    def _raw(self) -> Iterator[tuple[int, TraceRequest]]:
        self.skipped.rows = 0
        with _Readable(self.path) as file:
            found = _Rows(self.path, self.format, file, skipped=self.skipped).requests()
            yield from islice(found, self.limit)

    def _sorted(self) -> Iterator[TraceRequest]:
        return iter(sorted((row for _, row in self._raw()), key=lambda row: row.arrival_s))

    def _in_order(self) -> Iterator[TraceRequest]:
        last = (0, float("-inf"))
        for line, row in self._raw():
            if row.arrival_s < last[1]:
                raise UsageError(
                    f"{self.path}, line {line}: the arrival is {last[1] - row.arrival_s:g} s "
                    f"before that of line {last[0]}; the trace is not sorted. Sort it, or ask for "
                    "sort (it is then read into memory as a whole)."
                )
            last = (line, row.arrival_s)
            yield row


def read_requests(
    path: str | Path, *, format: str = "auto", sort: bool = False, limit: int | None = None
) -> Iterator[TraceRequest]:
    """The requests of a file, one at a time (see ``TraceFile``). Raises UsageError."""
    return iter(TraceFile(Path(path), format, sort, limit))


def write_requests(path: str | Path, requests: Iterable[TraceRequest]) -> int:
    """Write requests as JSON lines in the project's own format; returns how many.

    A reader never sees half a file. Raises UsageError where the disk refuses.
    """
    target, count = Path(path), 0
    partial = target.with_name(f".{target.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            for request in requests:
                file.write(json.dumps(_as_row(request), separators=(",", ":")) + "\n")
                count += 1
        partial.replace(target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def _as_row(request: TraceRequest) -> dict[str, Any]:
    row: dict[str, Any] = {
        "arrival_s": request.arrival_s,
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
    }
    if request.block_ids:
        row |= {"block_ids": request.block_ids, "block_tokens": request.block_tokens}
    for name in ("tenant", "priority", "session"):
        if value := getattr(request, name):
            row[name] = value
    return row


class _Readable:
    """Open a trace as text; what the system refuses becomes a UsageError with the file's name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> IO[str]:
        try:
            self.file = self._open()
            return self.file
        except OSError as error:
            raise self._unreadable(error) from error

    def _open(self) -> IO[str]:
        if self.path.suffix != ".gz":
            return self.path.open(newline="", encoding="utf-8-sig")
        return io.TextIOWrapper(gzip.open(self.path, "rb"), encoding="utf-8-sig", newline="")

    def _unreadable(self, error: Exception) -> UsageError:
        reason = getattr(error, "strerror", None) or error
        return UsageError(f"the trace {self.path} cannot be read: {reason}.")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.file.close()
        if isinstance(error, OSError | UnicodeDecodeError | EOFError | csv.Error):
            raise self._unreadable(error) from error


class _Rows:
    """Rows of one open file, with their line numbers."""

    def __init__(
        self, path: Path, wanted: str, file: IO[str], *, skipped: Skipped | None = None
    ) -> None:
        self.path, self.line, self.skipped = path, 0, skipped or Skipped()
        self.lines = self._lines(file)
        self.first = next((line for line in self.lines if line.strip()), "")
        self.start = self.line
        if not self.first:
            raise UsageError(f"the trace {path} is empty.")
        kind = "jsonl" if self.first.lstrip().startswith("{") else "csv"
        if kind == "jsonl":
            columns = list(self._object(self.first))
        else:
            columns = [name.strip() for name in next(csv.reader([self.first]), [])]
        try:
            self.format = find_format(columns, kind=kind, wanted=wanted)
        except UsageError as error:
            raise UsageError(f"{path}, line {self.start}: {error}") from None
        self.parse = self.format.parser(columns)

    def _lines(self, file: IO[str]) -> Iterator[str]:
        while line := file.readline(LONGEST_LINE):
            self.line += 1
            if len(line) == LONGEST_LINE:
                raise UsageError(
                    f"{self.path}, line {self.line}: longer than {LONGEST_LINE:,} characters; a "
                    "trace has one request a line."
                )
            yield line

    def requests(self) -> Iterator[tuple[int, TraceRequest]]:
        """(line, request), blank lines left out; rows that are no requests are counted."""
        for line, request in self._rows():
            if request is None:
                self.skipped.rows += 1
            else:
                yield line, request

    def _rows(self) -> Iterator[tuple[int, TraceRequest | None]]:
        if self.format.kind == "jsonl":
            yield self.start, self._request(self.first)
            for line in self.lines:
                if line.strip():
                    yield self.line, self._request(line)
        else:
            for cells in csv.reader(self.lines):
                if cells:
                    yield self.line, self._parsed(cells, ",".join(cells))

    def _request(self, line: str) -> TraceRequest | None:
        return self._parsed(self._object(line), line)

    def _object(self, line: str) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._bad(line, f"no JSON ({error})") from None
        if not isinstance(found, dict):
            raise self._bad(line, "no JSON object")
        return found

    def _parsed(self, row: Any, text: str) -> TraceRequest | None:
        try:
            return self.parse(row)
        except BadValueError as error:
            raise self._bad(text, str(error)) from None
        except (KeyError, IndexError, TypeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else "too few columns"
            raise self._bad(text, what) from None

    def _bad(self, text: str, reason: str) -> UsageError:
        shown = text.strip()
        shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
        return UsageError(f"{self.path}, line {self.line}: {shown!r} is no request: {reason}.")
