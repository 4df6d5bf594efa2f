"""Install the course from this folder, without a network. Standard library only.

    python install_offline.py COURSE            # COURSE: the folder that holds scripts/install.py
    python install_offline.py COURSE --verify   # only compare the checksums

Checks the Python version and every checksum, then lets the course's own installer work with
pip's --no-index and --find-links set to the wheels beside this file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def target() -> str:
    """This machine and Python as the wheelhouse names them."""
    system = f"{platform.system()}-{platform.machine()}".lower()
    return f"{system}-cp{sys.version_info[0]}{sys.version_info[1]}"


def sha256(path: Path) -> str:
    """Digest of a file, read in pieces."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def check_target(index: dict) -> str:
    """This machine's name. Exits with those that are here when it is not among them."""
    if target() not in index["targets"]:
        sys.exit(
            f"These wheels are for {', '.join(index['targets'])}; this is {target()} (Python "
            f"{platform.python_version()}). Start this file with a Python that fits, or build the "
            "wheelhouse for this one too: turbo-lab workshop wheelhouse DIR --python X.Y --system S"
        )
    return target()


def check_sums(name: str) -> int:
    """Number of files that were compared. Exits naming those that are missing or damaged."""
    bad, count = [], 0
    for line in (HERE / "SHA256SUMS").read_text().splitlines():
        wanted, path = line.split("  ", 1)
        if path.startswith("wheels/") and not path.startswith(f"wheels/{name}/"):
            continue
        count += 1
        if not (HERE / path).is_file() or sha256(HERE / path) != wanted:
            bad.append(path)
    if bad:
        sys.exit(
            f"Missing or damaged: {', '.join(bad[:5])} ({len(bad)} of {count} files). Copy this "
            "folder again."
        )
    return count


def check_course(course: Path, index: dict) -> Path:
    """The course's installer. Exits when the course is not there or has another lock."""
    installer, lock = course / "scripts/install.py", course / f"requirements/{index['kind']}.lock"
    if not installer.is_file() or not lock.is_file():
        sys.exit(f"{course} is not the course: it has no scripts/install.py or no {lock.name}.")
    if sha256(lock) != index["lock_sha256"]:
        sys.exit(
            f"{lock} is not the lock that these wheels were collected for. Build the wheelhouse "
            "again from the same version of the course."
        )
    return installer


def environment(name: str) -> dict:
    """Environment that lets pip see the wheels here and nothing else."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    return {
        **own,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": (HERE / "wheels" / name).as_uri(),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def main() -> int:
    """Command line. Exit code of the course's installer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("course", type=Path, help="folder of the course")
    parser.add_argument("--verify", action="store_true", help="compare checksums only")
    args = parser.parse_args()
    index = json.loads((HERE / "wheelhouse.json").read_text())
    name = check_target(index)
    print(f"{check_sums(name)} files are whole", flush=True)
    installer = check_course(args.course.resolve(), index)
    if args.verify:
        return 0
    command = [sys.executable, str(installer), index["kind"]]
    return subprocess.run(command, env=environment(name)).returncode


if __name__ == "__main__":
    sys.exit(main())
