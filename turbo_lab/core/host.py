"""Facts about this machine that can be read without running anything heavy."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from turbo_lab.core.errors import UsageError


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU. ``memory_bytes`` is the total on the card."""

    name: str
    memory_bytes: int
    driver: str


def cores_granted() -> int:
    """Cores this process may use: affinity and the cgroup's CPU quota, not the box's total."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _cgroup_cpu_quota()
    return max(1, min(affinity or 1, int(quota)) if quota and quota >= 1 else affinity or 1)


def _cgroup_cpu_quota() -> float | None:
    """The cgroup v2 quota in cores, or None where none is set."""
    path = Path("/sys/fs/cgroup/cpu.max")
    try:
        quota, period = path.read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def core_ids() -> list[int]:
    """Ids of the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@functools.cache
def clock_id() -> str:
    """The same text for all processes whose monotonic clocks agree: those of one running kernel."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{platform.node()}-{platform.machine()}"


@functools.cache
def cpu_name() -> str:
    """The processor's marketing name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Instruction-set flags as Linux names them (``avx2``, ``avx512f``, ``amx_tile``)."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def memory_total_bytes() -> int:
    """Memory this process may use: the machine's, or the cgroup's limit if that is lower."""
    import psutil

    total = psutil.virtual_memory().total
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return total if limit == "max" else min(total, int(limit))


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """NVIDIA GPUs as nvidia-smi lists them; empty where there is none."""
    if not shutil.which("nvidia-smi"):
        return ()
    query = [
        "nvidia-smi",
        "--query-gpu=name,memory.total,driver_version",
        "--format=csv,noheader,nounits",
    ]
    try:
        out = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return ()
    rows = [[part.strip() for part in line.split(",")] for line in out.splitlines() if line.strip()]
    return tuple(Gpu(r[0], int(float(r[1])) * 2**20, r[2]) for r in rows if len(r) == 3)


def has_module(name: str) -> bool:
    """True when ``name`` can be imported here; imports nothing."""
    return util.find_spec(name) is not None


def package_version(*names: str) -> str | None:
    """Version of the first of these distributions that is installed, else None."""
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def cache_folder() -> Path:
    """Where prepared models, machine settings and running servers are kept.

    ``TURBO_LAB_CACHE`` overrides it; else ``XDG_CACHE_HOME`` or ``~/.cache``. Raises UsageError for
    a user without a home folder (a container that runs under any number) who names none.
    """
    if override := os.environ.get("TURBO_LAB_CACHE"):
        return Path(override).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "turbo-lab"
    if (home := _home()) is None:
        raise UsageError(
            "this user has no home folder. Set TURBO_LAB_CACHE to a folder that can be written, "
            "with 2 GB free"
        )
    return home / ".cache" / "turbo-lab"


def _home() -> Path | None:
    home = user_path("~")
    return home if home.is_absolute() else None


def user_path(path: Path | str) -> Path:
    """A path that somebody typed, with ``~`` and ``~name`` as a shell reads them.

    As there, the name of an unknown user stays as it is (``Path.expanduser`` would raise).
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111


def short_path(path: Path | str) -> str:
    """A path as the lessons show it: relative to the checkout, or with the home folder as ``~``.

    So no user name and no place of one machine is printed.
    """
    for base, prefix in ((repository_root(), ""), (_home(), "~/")):
        if base is not None and Path(path).is_relative_to(base):
            return prefix + Path(path).relative_to(base).as_posix()
    return str(path)


def repository_root() -> Path:
    """The checkout this package was installed from (notebooks/ and data/ lie beside turbo_lab/)."""
    return Path(__file__).resolve().parents[2]


def python_version() -> str:
    """The interpreter's version, e.g. ``3.11.7``."""
    return sys.version.split()[0]
