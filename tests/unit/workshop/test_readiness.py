"""The self-check finds what is wrong and says the next step."""

from __future__ import annotations

import json
import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turbo_lab.cli.main import build_app
from turbo_lab.core import host
from turbo_lab.core.errors import UsageError
from turbo_lab.engines import local_model
from turbo_lab.workshop import readiness
from turbo_lab.workshop.readiness import Check, check_machine


@pytest.fixture(autouse=True)
def replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURBO_LAB_MODE", "replay")


def found(port: int = 0) -> dict[str, Check]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    return {c.name.split()[0]: c for c in check_machine(port=port or free, start_kernel=False)}


def test_a_machine_that_is_ready() -> None:
    checks = found()
    assert {c.status for c in checks.values()} <= {"ok", "warning"}
    assert checks["mode"].found == "replay" and checks["port"].status == "ok"
    assert "model" not in checks  # recorded results need none


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check = found(server.getsockname()[1])["port"]
    assert check.status == "warning" and "next free one" in check.next_step


def test_a_small_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")(10**9, 10**9, 10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(host, "memory_total_bytes", lambda: 10**9)
    monkeypatch.setattr(host, "cores_granted", lambda: 1)
    monkeypatch.setattr(host, "has_module", lambda name: name != "jupyterlab")
    monkeypatch.setattr(readiness, "OLDEST_PYTHON", (4, 0))
    checks = found()
    assert [checks[n].status for n in ("Python", "disk", "packages")] == ["failed"] * 3
    assert [checks[n].status for n in ("memory", "cores")] == ["warning"] * 2
    assert all(checks[n].next_step for n in ("Python", "disk", "memory", "cores", "packages"))


def test_a_mode_that_cannot_run_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURBO_LAB_MODE", "fast")
    assert found()["mode"].status == "failed"


def test_the_model_is_compared_with_its_checksum(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TURBO_LAB_CACHE", str(tmp_path))
    folder = local_model.model_folder()
    folder.mkdir(parents=True)
    weights = folder / "model.safetensors"
    weights.write_bytes(b"weights")
    marker = {
        "gguf_sha256": local_model.GGUF_SHA256,
        "files": {weights.name: 7},
        "weights_sha256": local_model.file_sha256(weights),
    }
    (folder / local_model.MARKER).write_text(json.dumps(marker))
    assert readiness._model().status == "ok"
    weights.write_bytes(b"WEIGHTS")  # same size, so that only the checksum tells
    assert readiness._model() == Check(
        "model", "failed", "the weights are damaged", readiness._model().next_step
    )


def test_a_kernel_starts_here() -> None:
    assert readiness._kernel().status == "ok"


def test_the_command_ends_with_one_when_something_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = (Check("disk", "failed", "1 MiB free", "Free some."), Check("cores", "ok", "2"))
    monkeypatch.setattr(readiness, "check_machine", lambda **_: bad)
    done = CliRunner().invoke(build_app("env"), ["env", "--check"])
    assert done.exit_code == 1 and "-> Free some." in done.stdout
    monkeypatch.setattr(readiness, "check_machine", lambda **_: bad[1:])
    done = CliRunner().invoke(build_app("env"), ["env", "--check", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)[0]["name"] == "cores"


def test_an_impossible_port_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="1 to 65535"):
        check_machine(port=0)
