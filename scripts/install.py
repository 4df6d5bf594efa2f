"""Create the environment in .venv from the locks. Standard library only.

    python scripts/install.py            # what this machine can do (cpu, gpu or replay)
    python scripts/install.py replay     # light: no torch, no vLLM
    python scripts/install.py cpu --dev  # everything that the tests need
    python scripts/install.py site       # what builds the site, in .venv-site

An environment that is already complete is left alone, so the second call needs no network.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
KINDS = ("replay", "cpu", "gpu", "site")
ANYWHERE = ("replay", "site")  # kinds that need no engine, so every system has them
DISK_FULL = ("No space left on device", "Disk quota exceeded", "not enough space on the disk")
FOLDERS = {"site": ".venv-site"}  # kinds with a folder of their own; all others are in .venv


def wanted_kind(asked: str) -> str:
    """Turn ``auto`` into what this machine can run; say why it is less than asked."""
    system, machine = platform.system(), platform.machine()
    live = system == "Linux" and machine in ("x86_64", "aarch64")
    if asked in ANYWHERE or live:
        if asked != "auto":
            return asked
        return "gpu" if shutil.which("nvidia-smi") and machine == "x86_64" else "cpu"
    print(
        f"There is no vLLM wheel for {system} on {machine}: installing the replay environment.\n"
        "The notebooks then show recorded results, labelled as recorded. To run them live, use a\n"
        "Linux container or, on Windows, WSL2 (README, section 'Hardware and systems')."
    )
    return "replay"


def venv_python(folder: Path) -> Path:
    """The interpreter inside a virtual environment."""
    return folder / ("Scripts/python.exe" if platform.system() == "Windows" else "bin/python")


def digest(names: list[str]) -> str:
    """Digest of the files that decide what is installed."""
    files = [LOCKS / f"{n}.lock" for n in names] + [ROOT / "pyproject.toml"]
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()


def has_stamp(folder: Path, name: str, wanted: str) -> bool:
    """True when part ``name`` was installed whole from these very locks."""
    stamp = folder / f".turbo-lab-{name}"
    return stamp.exists() and stamp.read_text() == wanted


def run(command: list[str], *, what: str) -> None:
    """Run one step; on failure show the end of its output and what to do."""
    start = time.monotonic()
    print(f"  {what} ...", flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        sys.exit(
            f"\n{tail}\n\nInstall step failed: {what}\n  command: {' '.join(command)}\n"
            f"Next step: {next_step(done.stdout)}.\n"
            "Then run the same command again; finished steps are kept."
        )
    print(f"  {what}: {time.monotonic() - start:.0f} s", flush=True)


def next_step(output: str) -> str:
    """What to do after a failed step, from what it printed."""
    if any(text in output for text in DISK_FULL):
        return f"free some space on the disk of {ROOT} (pip also unpacks below TMPDIR)"
    if "No module named pip" in output:
        return "remove the environment's folder, it was left half made"
    if "Permission denied" in output:
        return f"make {ROOT} a folder that you may write to (nothing here needs root)"
    return "check the connection to your package index"


def create(folder: Path) -> None:
    """Make a virtual environment with pip, whole or not at all.

    Exits with the next step for an old Python, one without ensurepip, and a full disk.
    """
    if sys.version_info < (3, 11):  # noqa: UP036 - this file also runs under an old python3
        sys.exit(
            f"Python 3.11 or newer is needed; this is {platform.python_version()}. Where a newer\n"
            "one is installed, name it: make lab PYTHON=python3.12, or without make:\n"
            "python3.12 scripts/install.py. Else: conda env create -f environment.yml"
        )
    print(f"  creating {folder.name}")
    try:
        venv.create(folder, with_pip=True, symlinks=platform.system() != "Windows")
    except BaseException as error:  # Ctrl-C too: half an environment would pass for a whole one
        shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, (OSError, subprocess.SubprocessError)):
            raise  # Debian's own venv tells what to install and exits
        sys.exit(f"{folder.name} could not be made: {why_no_venv(error)}")


def why_no_venv(error: Exception) -> str:
    """The reason and the next step, from what ``venv.create`` raised."""
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return (
            "this Python has no ensurepip, so there is no pip to install with.\n"
            f"Next step on Debian and Ubuntu: sudo apt install python{version}-venv.\n"
            "Then run the same command again."
        )
    told = getattr(error, "output", None) or b""
    text = told.decode(errors="replace") if isinstance(told, bytes) else told
    step = next_step(f"{error} {text}")
    tail = "\n".join([type(error).__name__, *text.splitlines()[-4:]]) if text else str(error)
    return f"{tail}\nNext step: {step}.\nThen run the same command again."


def install_torch_cpu(python: Path) -> None:
    """The CPU wheel of torch: from a configured local copy first, else from PyTorch's index.

    The index is given for torch alone: for the whole lock every package would be asked there too.
    """
    pin = re.search(r"^torch==\S+", (LOCKS / "torch-cpu.lock").read_text(), flags=re.M).group(0)
    pip = [str(python), "-m", "pip", "install", "--no-deps", "-q"]
    local = subprocess.run([*pip, "--retries", "1", pin], capture_output=True, text=True)
    if local.returncode == 0:
        print(f"  {pin}: from the package sources that pip is configured with")
        return
    run(
        [*pip, "--retries", "2", "--timeout", "60", "--extra-index-url", TORCH_CPU_INDEX, pin],
        what=f"{pin} from PyTorch's CPU index",
    )


def install_lock(python: Path, name: str) -> None:
    """One lock, hashes checked, dependencies taken from the lock alone."""
    run(
        [
            str(python),
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--require-hashes",
            "-r",
            str(LOCKS / f"{name}.lock"),
        ],
        what=f"requirements/{name}.lock",
    )


def install(folder: Path, kind: str, *, dev: bool) -> None:
    """Bring the environment in ``folder`` to ``kind`` (and the developers' tools)."""
    python = venv_python(folder)
    if not python.exists():
        create(folder)
    parts = [kind] + (["dev"] if dev else [])
    for name in parts:
        names = [name, "torch-cpu"] if name == "cpu" else [name]
        wanted = digest(names)
        covered = name == "replay" and any(
            has_stamp(folder, k, digest([k, "torch-cpu"] if k == "cpu" else [k]))
            for k in ("cpu", "gpu")
        )
        if has_stamp(folder, name, wanted) or covered:
            continue
        if name == "cpu":
            install_torch_cpu(python)
        install_lock(python, name)
        if name != "dev":
            run(
                [str(python), "-m", "pip", "install", "-q", "--no-deps", "-e", str(ROOT)],
                what="turbo_lab itself (editable)",
            )
        (folder / f".turbo-lab-{name}").write_text(wanted)
    print(f"Environment ready: {folder.name} ({' + '.join(parts)})")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", nargs="?", default="auto", choices=("auto", *KINDS))
    parser.add_argument("--dev", action="store_true", help="also the tools that the tests need")
    parser.add_argument("--venv", type=Path, help="folder (default .venv; for site .venv-site)")
    args = parser.parse_args()
    folder = args.venv or ROOT / FOLDERS.get(args.kind, ".venv")
    install(folder, wanted_kind(args.kind), dev=args.dev)


if __name__ == "__main__":
    main()
