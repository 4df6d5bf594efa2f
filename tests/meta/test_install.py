"""What a newcomer reads when the installation fails: reason and next step; nothing half made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from .test_pins import ROOT, script


@pytest.fixture
def install() -> ModuleType:
    return script("install")


def fails(install: ModuleType, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """``venv.create`` makes an interpreter and then fails, as it does without ensurepip."""

    def create(folder: Path, **_: object) -> None:
        python = install.venv_python(folder)
        python.parent.mkdir(parents=True)
        python.touch()
        raise error

    monkeypatch.setattr(install.venv, "create", create)


def refused(install: ModuleType, folder: Path) -> str:
    with pytest.raises(SystemExit) as caught:
        install.install(folder, "replay", dev=False)
    return str(caught.value)


def test_a_python_without_ensurepip_is_told_which_package(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fails(install, monkeypatch, subprocess.CalledProcessError(1, ["ensurepip"], output=b"no\n"))
    none = SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: None))
    monkeypatch.setattr(install, "importlib", none)
    told = refused(install, tmp_path / ".venv")
    assert f"python{sys.version_info[0]}.{sys.version_info[1]}-venv" in told
    assert not (tmp_path / ".venv").exists()  # else the next call would take it for a whole one


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interrupted_environment_is_removed(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException
) -> None:
    fails(install, monkeypatch, error)
    with pytest.raises(type(error)):
        install.install(tmp_path / ".venv", "replay", dev=False)
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("printed", "wanted"),
    [
        ("ERROR: [Errno 28] No space left on device", "free some space"),
        ("WARNING: Retrying ... Connection refused", "check the connection"),
        ("python: No module named pip", "remove the environment"),
        ("OSError: [Errno 13] Permission denied: 'x'", "you may write to"),
    ],
)
def test_a_failed_step_names_the_next_one(install: ModuleType, printed: str, wanted: str) -> None:
    command = [sys.executable, "-c", f"print({printed!r}); raise SystemExit(1)"]
    with pytest.raises(SystemExit) as caught:
        install.run(command, what="a step")
    told = str(caught.value)
    assert printed in told and wanted in told and "Install step failed: a step" in told
    assert ("connection" in told) == (wanted == "check the connection")


def test_a_full_disk_is_no_lost_connection(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fails(install, monkeypatch, OSError(28, "No space left on device"))
    assert "free some space" in refused(install, tmp_path / ".venv")


def test_an_old_python_is_told_how_to_name_a_newer_one(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(install, "sys", SimpleNamespace(version_info=(3, 10, 12), exit=sys.exit))
    told = refused(install, tmp_path / ".venv")
    assert "3.11 or newer" in told and "PYTHON=python3.12" in told
    assert not (tmp_path / ".venv").exists()


def test_the_section_it_points_to_is_in_the_readme() -> None:
    text = (ROOT / "scripts" / "install.py").read_text()
    name = text.split("README, section '")[1].split("'")[0]
    assert f"## {name}\n" in (ROOT / "README.md").read_text()
