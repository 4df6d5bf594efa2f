"""The bundled model's failure cases. Nothing half-written may pass for whole."""

from __future__ import annotations

import errno
import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from turbo_lab.core.errors import EngineError, MissingDependencyError, UsageError
from turbo_lab.engines import local_model
from turbo_lab.engines.vllm_server import check_model_folder

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURBO_LAB_CACHE", str(tmp_path))
    return tmp_path


def quiet(_: str) -> None:
    pass


def fake_convert(gguf: Path, target: Path, report) -> None:
    target.mkdir()
    (target / "config.json").write_text("{}")
    (target / "model.safetensors").write_bytes(b"weights")


def fake_source(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(local_model, "source_gguf", lambda: path)
    monkeypatch.setattr(local_model.metadata, "version", lambda _: "0.0")


def test_prepare_is_atomic_and_done_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_source(monkeypatch, cache / "x.gguf")
    calls = []
    monkeypatch.setattr(local_model, "_convert", lambda *a: (calls.append(1), fake_convert(*a)))
    first = local_model.prepare(report=quiet)
    assert local_model.prepare(report=quiet) == first and calls == [1]
    assert not list(first.parent.glob("*.partial"))


def test_interrupted_preparation_leaves_nothing_that_looks_whole(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_source(monkeypatch, cache / "x.gguf")

    def interrupted(gguf: Path, target: Path, report) -> None:
        fake_convert(gguf, target, report)
        raise KeyboardInterrupt

    monkeypatch.setattr(local_model, "_convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        local_model.prepare(report=quiet)
    assert not local_model.model_folder().exists()
    monkeypatch.setattr(local_model, "_convert", fake_convert)
    assert local_model.is_prepared(local_model.prepare(report=quiet))


@pytest.mark.parametrize("damage", ["truncate", "remove", "marker"])
def test_damaged_model_is_prepared_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    fake_source(monkeypatch, cache / "x.gguf")
    monkeypatch.setattr(local_model, "_convert", fake_convert)
    folder = local_model.prepare(report=quiet)
    target = folder / ("model.safetensors" if damage != "marker" else local_model.MARKER)
    target.unlink() if damage == "remove" else target.write_bytes(b"w")
    assert not local_model.is_prepared(folder)
    local_model.prepare(report=quiet)
    assert local_model.is_prepared(folder)


def test_truncated_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf = tmp_path / local_model.GGUF
    gguf.parent.mkdir(parents=True)
    gguf.write_bytes(b"GGUF cut short")

    class Distribution:
        def locate_file(self, name: str) -> Path:
            return tmp_path / name

    monkeypatch.setattr(local_model.metadata, "distribution", lambda _: Distribution())
    monkeypatch.setattr(local_model.metadata, "version", lambda _: "0.1.2")
    with pytest.raises(EngineError, match=r"damaged.*14 bytes.*--force-reinstall"):
        local_model.source_gguf()
    gguf.unlink()
    with pytest.raises(EngineError, match="is missing"):
        local_model.source_gguf()


def test_missing_package_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "PACKAGE", "no-such-package-here")
    with pytest.raises(MissingDependencyError, match=r"scripts/install.py cpu"):
        local_model.source_gguf()


def test_no_space_left_says_how_much_is_needed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1, 1, 5_000_000))
    with pytest.raises(EngineError, match=r"5 MB free.*Free about 1.2 GB.*TURBO_LAB_CACHE"):
        local_model.prepare(report=quiet)
    assert not local_model.model_folder().exists()


def test_disk_filling_up_while_writing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_source(monkeypatch, cache / "x.gguf")

    def full(gguf: Path, target: Path, report) -> None:
        fake_convert(gguf, target, report)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local_model, "_convert", full)
    with pytest.raises(EngineError, match="No space left on device"):
        local_model.prepare(report=quiet)
    assert [
        p.name for p in local_model.model_folder().parent.iterdir() if not p.name.endswith(".lock")
    ] == []


@pytest.mark.parametrize("name", ["/no/such/folder", "./absent", "plain"])
def test_missing_model_folder(name: str) -> None:
    with pytest.raises(UsageError, match="does not exist|allowed: a folder"):
        local_model.resolve_model(name)


def test_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no config.json"):
        check_model_folder(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({}))
    assert local_model.resolve_model(str(tmp_path)) == str(tmp_path.resolve())


def test_hub_ids_pass() -> None:
    assert local_model.resolve_model("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
