"""How fast the doctor reads a log: 200 MB of four kinds, with the largest memory it took.

Budget: under 5 s for 200 MB, constant memory. The kinds: a busy server's log, one error repeated,
binary junk, and text of which no two lines are alike (the worst case for the memory of templates).
For scale, ``grep -c`` with one word over the same file stands beside it, and Python's plain
reading of its lines.

    python benchmarks/doctor.py [--megabytes 200] [--kinds busy unlike]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

BUDGET_S = 5.0
CHILD = (
    "import resource, sys, time\n"
    "from turbo_lab.diagnose.doctor import diagnose\n"
    "begin, used = time.perf_counter(), time.process_time()\n"
    "told = diagnose([sys.argv[1]])\n"
    "print(time.perf_counter() - begin, time.process_time() - used,\n"
    "      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, *told.causes)\n"
)
WORDS = ("prompt", "token", "model", "cache", "engine", "error", "request", "block", "worker",
         "not", "found", "the", "a", "of", "size", "memory", "step", "time")  # fmt: skip


def busy(rng: random.Random) -> Iterator[bytes]:
    """Answers, load lines, logged requests and a few tracebacks, as of a served hour."""
    while True:
        number, kind = rng.randrange(10**6), rng.random()
        if kind < 0.6:
            yield (b'(APIServer pid=37) INFO:     10.0.0.4:%d - "POST /v1/chat/completions '
                   b'HTTP/1.1" 200 OK\n' % number)  # fmt: skip
        elif kind < 0.7:
            yield (b"(APIServer pid=37) INFO 09-02 10:13:11 [loggers.py:127] Engine 000: Avg "
                   b"prompt throughput: %d.4 tokens/s, Avg generation throughput: %d.1 tokens/s, "
                   b"Running: %d reqs, Waiting: 0 reqs, GPU KV cache usage: 2.2%%\n"
                   % (number % 999, number % 777, 1 + number % 9))  # fmt: skip
        elif kind < 0.98:
            text = " ".join(rng.choices(WORDS, k=24)).encode()
            yield (b"INFO 05-08 10:00:01 [logger.py:43] Received request c-%d: prompt: '%s', "
                   b"params: SamplingParams(n=1, temperature=0.0)\n" % (number, text))  # fmt: skip
        else:
            yield (
                b'ERROR 10-25 13:08:43 [core.py:708]   File "core.py", line %d, in step\n' % number
            )


def repeated(rng: random.Random) -> Iterator[bytes]:
    """One failing call, again and again."""
    while True:
        yield b"ERROR 01-01 00:00:00 [io.py:%d] OSError: [Errno 28] No space left on device\n" % (
            rng.randrange(999)
        )


def junk(rng: random.Random) -> Iterator[bytes]:
    """Bytes without meaning."""
    while True:
        yield rng.randbytes(1 << 16)


def unlike(rng: random.Random) -> Iterator[bytes]:
    """Sentences that never come twice."""
    while True:
        yield " ".join(rng.choices(WORDS, k=28)).encode() + b"\n"


KINDS: dict[str, Callable[[random.Random], Iterator[bytes]]] = {
    "busy": busy, "repeated": repeated, "junk": junk, "unlike": unlike,
}  # fmt: skip


def write(path: Path, kind: str, size_bytes: int) -> None:
    """Write about ``size_bytes`` of one kind."""
    written, rows = 0, KINDS[kind](random.Random(1))
    with path.open("wb") as file:
        while written < size_bytes:
            part = b"".join(next(rows) for _ in range(1000 if kind != "junk" else 16))
            written += file.write(part)


def main() -> None:
    """Print one row per kind."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=int, default=200)
    options.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    asked = options.parse_args()
    size = asked.megabytes * 10**6
    print(f"{size / 1e6:.0f} MB each, {os.cpu_count()} cores; budget {BUDGET_S} s")
    print(f"{'kind':10}{'wall s':>8}{'CPU s':>8}{'MiB':>7}{'lines s':>9}{'grep s':>8}  findings")
    with tempfile.TemporaryDirectory() as folder:
        for kind in asked.kinds:
            path = Path(folder) / f"{kind}.log"
            write(path, kind, size)
            done = subprocess.run([sys.executable, "-c", CHILD, path], capture_output=True,
                                  text=True, check=True)  # fmt: skip
            wall, cpu, mib, *causes = done.stdout.split()
            print(f"{kind:10}{float(wall):8.2f}{float(cpu):8.2f}{float(mib):7.0f}"
                  f"{_lines_s(path):9.2f}{_grep_s(path):8.2f}  {' '.join(causes) or 'none'}",
                  flush=True)  # fmt: skip
            path.unlink()


def _lines_s(path: Path) -> float:
    begin = time.perf_counter()
    with path.open("rb") as file:
        for _ in file:
            pass
    return time.perf_counter() - begin


def _grep_s(path: Path) -> float:
    if shutil.which("grep") is None:
        return float("nan")
    begin = time.perf_counter()
    subprocess.run(["grep", "-a", "-i", "-c", "out of memory", path], capture_output=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
