"""A regression gate and its own test: plant a known slowdown and see that the gate stops it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.core.errors import TurboLabError, UsageError
from turbo_lab.experiment.arms import Arm
from turbo_lab.experiment.metric_names import PER_REQUEST, PER_WINDOW
from turbo_lab.experiment.run_folder import RECORD_NAME
from turbo_lab.records import store
from turbo_lab.records.digest import seal
from turbo_lab.records.schema import Measurement, Record

BUILD = "build"  # the variable that differs between the two sides of a gate
GATE_TIMEOUT_S = 120.0


def planted(arm: Arm, *, slower: float, build: str = "planted") -> Arm:
    """The same runs as if every time were ``slower`` times as long and every rate as much lower.

    The records declare ``build``, so that the gate can name what changed. Scatter stays relative.
    """
    if not (slower > 0 and math.isfinite(slower)):
        raise UsageError(f"slower is {slower!r}; a number above 0 is wanted (1.2 is a fifth more)")
    return Arm(build, tuple(_slowed(r, slower, build) for r in arm.records))


def _slowed(record: Record, slower: float, build: str) -> Record:
    rows = tuple(_scaled(m, slower) for m in record.measurements)
    variables = {**record.variables, BUILD: build}
    return seal(record.model_copy(update={"measurements": rows, "variables": variables}))


def _scaled(found: Measurement, slower: float) -> Measurement:
    factor = slower if found.name in PER_REQUEST else 1 / slower
    if found.name not in (*PER_REQUEST, *PER_WINDOW):
        return found
    samples = tuple(None if v is None else v * factor for v in found.samples)
    value = None if found.value is None else found.value * factor
    return found.model_copy(update={"samples": samples, "value": value})


def write_arm(arm: Arm, folder: Path) -> Path:
    """A folder of run folders, as ``turbo-lab compare`` reads it. Returns it."""
    for number, record in enumerate(arm.records, 1):
        store.write(record, folder / f"restart-{number}" / RECORD_NAME)
    return folder


@dataclass(frozen=True)
class GateRun:
    """What the command said. ``exit_code`` 0 lets the build through."""

    command: str
    exit_code: int
    lines: tuple[str, ...]


def run_gate(reference: Arm, candidate: Arm, *, metric: str, folder: Path) -> GateRun:
    """``turbo-lab compare REFERENCE CANDIDATE --declared build --gate``, as CI would call it.

    Both arms are written below ``folder``; the machine's stored noise floors are left out, so that
    the result depends on the two arms alone. Raises TurboLabError where the command ends without a
    verdict: a crash has the same exit code as a regression, and must not be taken for one.
    """
    words = ["compare", "main", "branch", "--declared", BUILD, "--metric", metric, "--gate",
             "--no-store"]  # fmt: skip
    write_arm(reference, folder / "main")
    write_arm(candidate, folder / "branch")
    with tempfile.TemporaryDirectory(prefix="turbo-lab-gate-") as cache:
        done = subprocess.run(
            [sys.executable, "-m", "turbo_lab.cli.main", *words], cwd=folder,
            capture_output=True, text=True, timeout=GATE_TIMEOUT_S,
            env={**os.environ, "TURBO_LAB_CACHE": cache, "NO_COLOR": "1"},
        )  # fmt: skip
    told, command = done.stdout.splitlines(), f"turbo-lab {' '.join(words)}"
    if not told or not told[-1].startswith("gate: "):
        said = (done.stderr or done.stdout).strip()[-300:]
        raise TurboLabError(
            f"the gate gave no verdict (exit code {done.returncode}): {said}. Run it by hand in "
            f"{folder}: {command}"
        )
    return GateRun(command, done.returncode, tuple(told))


def smallest_seen(arm: Arm, *, metric: str, steps: Sequence[float], folder: Path) -> float | None:
    """The smallest of these slowdowns that the comparison calls worse; None where it sees none.

    A gate that lets everything below it pass has shown nothing about smaller regressions.
    """
    from turbo_lab.experiment.compare import compare

    reference = planted(arm, slower=1.0, build="main")
    for step in sorted(steps):
        found = compare(
            reference, planted(arm, slower=step), declared=BUILD, metric=metric, store=False,
            folder=folder,
        )  # fmt: skip
        if found.verdict == "worse":
            return step
    return None
