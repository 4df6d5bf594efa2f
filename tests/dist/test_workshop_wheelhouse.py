"""A wheelhouse built from a tiny lock, and the course installed from it without a network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from turbo_lab.core.errors import DownloadError, UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.workshop.isolation import probe
from turbo_lab.workshop.lockfile import find_target
from turbo_lab.workshop.wheelhouse import build_wheelhouse

# A build backend of one file: the real one would have to come from an index.
BACKEND = """
import pathlib, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "tiny_course-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        wheel.writestr("tiny_course.pth", str(pathlib.Path.cwd()))
        info = "tiny_course-1.0.dist-info/"
        told = "Metadata-Version: 2.1\\nName: tiny-course\\nVersion: 1.0\\n"
        wheel.writestr(info + "METADATA", told)
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny-course"
version = "1.0"
"""


def make_wheel(folder: Path, name: str, version: str) -> str:
    """Write a wheel with one module. Returns its lock line."""
    info, module = f"{name}-{version}.dist-info", f"VALUE = {version!r}\n"
    files = {
        f"{name}.py": module,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{path},sha256={digest.decode()},{len(text)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inside, text in files.items():
            wheel.writestr(inside, text)
    return (
        f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package index of two wheels, as a folder."""
    return tmp_path_factory.mktemp("index")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory, index: Path) -> Path:
    """A course with the real installer, a lock of two packages and a project of its own."""
    root = tmp_path_factory.mktemp("a course")  # with a space, as folders have
    (root / "scripts").mkdir()
    shutil.copy2(repository_root() / "scripts" / "install.py", root / "scripts")
    (root / "requirements").mkdir()
    lines = [make_wheel(index, "tiny_one", "1.0"), make_wheel(index, "tiny_two", "2.0")]
    (root / "requirements" / "replay.lock").write_text("".join(lines))
    for other in ("cpu", "gpu", "torch-cpu"):  # the installer looks whether these are there already
        (root / "requirements" / f"{other}.lock").write_text("# empty\n")
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "backend.py").write_text(BACKEND)
    (root / "tiny_lesson.py").write_text("import tiny_one, tiny_two\nprint(tiny_two.VALUE)\n")
    return root


@pytest.fixture
def only_this_index(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", index.as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


@pytest.fixture
def house(course: Path, only_this_index: None, tmp_path: Path) -> Path:
    folder = tmp_path / "wheel house"
    done = build_wheelhouse(
        folder, kind="replay", targets=[find_target()], root=course, report=lambda _: None
    )
    assert done.fetched == 2 and done.files == 2 + 2
    return folder


def offline(house: Path, course: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the offline installer where there is no network."""
    prefix = [p for p in probe().prefix if p in ("--user", "--map-root-user", "--net")]
    command = ["unshare", *prefix] if prefix else []
    dead = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "all_proxy")}
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    return subprocess.run(
        [*command, sys.executable, str(house / "install_offline.py"), str(course), *arguments],
        env={**clean, **dead}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_the_course_is_installed_without_a_network(house: Path, course: Path) -> None:
    done = offline(house, course)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 files are whole" in done.stdout
    python = course / ".venv" / "bin" / "python"
    told = subprocess.run([python, "-c", "import tiny_lesson"], capture_output=True, text=True)
    assert told.stdout == "2.0\n", told.stderr
    shutil.rmtree(course / ".venv")


def test_a_second_build_fetches_only_what_is_missing_or_damaged(house: Path, course: Path) -> None:
    first, second = sorted((house / "wheels" / find_target().name).glob("*.whl"))
    first.write_bytes(b"damaged")
    before = second.stat().st_mtime_ns
    lines: list[str] = []
    build_wheelhouse(
        house, kind="replay", targets=[find_target()], root=course, report=lines.append
    )
    assert "1 are there already" in lines[0] and second.stat().st_mtime_ns == before
    assert offline(house, course, "--verify").returncode == 0
    with pytest.raises(UsageError, match="a folder of its own"):
        build_wheelhouse(house, kind="cpu", targets=[find_target("linux-x86_64")], root=course)


def test_wheels_for_every_patch_release_are_collected(
    course: Path, index: Path, only_this_index: None, tmp_path: Path
) -> None:
    """One of the two is for this Python's other patch releases; pip takes them in two calls."""
    there = f"{sys.version_info[0]}.{sys.version_info[1]}.5"
    split = tmp_path / "course"
    shutil.copytree(course, split, ignore=shutil.ignore_patterns(".venv"))
    older, newer = (make_wheel(index, "tiny_old", version) for version in ("1.0", "2.0"))
    lines = [
        older.replace(" \\", f" ; python_full_version < '{there}' \\", 1),
        newer.replace(" \\", f" ; python_full_version >= '{there}' \\", 1),
    ]
    (split / "requirements" / "replay.lock").write_text("".join(lines))
    done = build_wheelhouse(
        tmp_path / "h", kind="replay", targets=[find_target()], root=split, report=lambda _: None
    )
    names = sorted(p.name for p in done.folder.rglob("*.whl"))
    assert [name.split("-")[:2] for name in names] == [["tiny_old", "1.0"], ["tiny_old", "2.0"]]


def test_damage_another_python_and_another_course_are_told(
    house: Path, course: Path, tmp_path: Path
) -> None:
    assert "is not the course" in offline(house, tmp_path, "--verify").stderr
    other = tmp_path / "other"
    shutil.copytree(course, other, ignore=shutil.ignore_patterns(".venv"))
    (other / "requirements" / "replay.lock").write_text("# another\n")
    assert "not the lock" in offline(house, other, "--verify").stderr
    wheel = next(house.glob("wheels/*/tiny_one*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-1])
    assert "Missing or damaged: wheels/" in offline(house, course, "--verify").stderr
    listed = json.loads((house / "wheelhouse.json").read_text())
    (house / "wheelhouse.json").write_text(json.dumps({**listed, "targets": ["beos-x86-cp39"]}))
    told = offline(house, course, "--verify").stderr
    assert "These wheels are for beos-x86-cp39; this is" in told and "--python" in told


def test_a_file_that_is_not_the_promised_one_is_refused(
    course: Path, only_this_index: None, tmp_path: Path
) -> None:
    false = tmp_path / "course"
    shutil.copytree(course, false, ignore=shutil.ignore_patterns(".venv"))
    text = (false / "requirements" / "replay.lock").read_text()
    start = text.index("sha256:") + 7
    (false / "requirements" / "replay.lock").write_text(
        text[:start] + "0" * 64 + text[start + 64 :]
    )
    with pytest.raises(DownloadError, match="sha256 differs"):
        build_wheelhouse(
            tmp_path / "h", kind="replay", targets=[find_target()], root=false,
            report=lambda _: None,
        )  # fmt: skip
