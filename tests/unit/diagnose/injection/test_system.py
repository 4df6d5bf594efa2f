"""Full disk, taken port, killed part, untrained draft: the real thing without a server."""

from __future__ import annotations

import errno
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.core.processes import stop_group
from turbo_lab.diagnose.injection.full_disk import namespace_words, small_disk_command
from turbo_lab.diagnose.injection.process_faults import kill_part, processes_of
from turbo_lab.diagnose.injection.start_faults import small_folder, taken_port
from turbo_lab.engines.base import GuardedProcess


@pytest.fixture
def namespaces() -> None:
    try:
        namespace_words()
    except UnmeasuredError as error:
        pytest.skip(str(error))


WRITE = "import sys, pathlib as p; p.Path(sys.argv[1], 'x').write_text('y' * int(sys.argv[2]))"


def written(folder: Path, size: int, *, full: bool, disk: int = 64 * 1024):
    command = [sys.executable, "-c", WRITE, str(folder), str(size)]
    command = small_disk_command(command, folder=folder, size_bytes=disk, full=full)
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.usefixtures("namespaces")
def test_one_process_alone_sees_the_full_disk(tmp_path: Path) -> None:
    done = written(tmp_path, 10, full=True)
    assert done.returncode and f"[Errno {errno.ENOSPC}]" in done.stderr
    assert written(tmp_path, 10, full=False).returncode == 0
    assert written(tmp_path, 100_000, full=False).returncode
    assert list(tmp_path.iterdir()) == [], "the disk was the process's own"
    (tmp_path / "x").write_text("here is room")
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


@pytest.mark.usefixtures("namespaces")
def test_a_server_is_given_a_small_disk_and_the_folder_goes_with_it(tmp_path: Path) -> None:
    process = GuardedProcess([sys.executable, "-c", "pass"], tmp_path / "s", {})
    server = SimpleNamespace(process=process)
    with small_folder(server, where="cache", size_bytes=4096, full=True):  # type: ignore[arg-type]
        folder = Path(process.env["VLLM_CACHE_ROOT"])
        assert folder.is_dir() and process.command[-3:] == [sys.executable, "-c", "pass"]
    assert not folder.exists()


def test_a_taken_port_is_taken_until_the_end() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with taken_port(SimpleNamespace(port=port)), socket.socket() as second:  # type: ignore[arg-type]
        with pytest.raises(OSError) as caught:
            second.bind(("127.0.0.1", port))
        assert caught.value.errno == errno.EADDRINUSE
    with socket.socket() as third:
        third.bind(("127.0.0.1", port))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[GuardedProcess]:
    """A process group that looks like a server's: a front end and an engine core."""
    if not shutil.which("bash") or sys.platform != "linux":
        pytest.skip("needs bash and /proc")
    script = "(exec -a VLLM::EngineCore sleep 60) & exec -a front sleep 60"
    child = subprocess.Popen(["bash", "-c", script], start_new_session=True)
    process = GuardedProcess([], tmp_path, {})
    process.status.write_text(json.dumps({"pgid": child.pid}))
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if any(title.startswith(b"VLLM::") for title in processes_of(process).values()):
            break
        time.sleep(0.01)
    try:
        yield process
    finally:
        stop_group(child.pid)
        child.wait(10)


@pytest.mark.parametrize("part", ["engine", "worker"])
def test_only_the_named_part_is_killed(group: GuardedProcess, part: str) -> None:
    """Where one rank has no worker process, the engine is what computes."""
    pid = kill_part(group, part)
    deadline = time.monotonic() + 10
    while pid in processes_of(group) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [title.split()[0] for title in processes_of(group).values()] == [b"front"]
    with pytest.raises(UnmeasuredError, match=f"called {part}"):
        kill_part(group, part)


def test_without_a_status_there_is_nothing_to_kill(tmp_path: Path) -> None:
    with pytest.raises(UnmeasuredError, match="process group"):
        kill_part(GuardedProcess([], tmp_path, {}), "engine")


def test_an_untrained_draft_has_the_targets_shapes_and_one_layer(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="needs the cpu environment")
    import numpy as np
    from safetensors.numpy import load_file, save_file

    from turbo_lab.diagnose.injection.untrained_draft import write_untrained_draft

    target = tmp_path / "target"
    target.mkdir()
    names = {"model.embed_tokens.weight": (10, 4), "model.norm.weight": (4,),
             "model.layers.0.mlp.up_proj.weight": (6, 4),
             "model.layers.0.input_layernorm.weight": (4,),
             "model.layers.1.mlp.up_proj.weight": (6, 4)}  # fmt: skip
    save_file({n: np.zeros(s, np.float32) for n, s in names.items()}, target / "model.safetensors")
    config = {"num_hidden_layers": 2, "vocab_size": 10, "layer_types": ["full", "full"]}
    (target / "config.json").write_text(json.dumps(config))
    (target / "tokenizer.json").write_text("{}")
    folder = write_untrained_draft(str(target), tmp_path / "draft")
    made = json.loads((folder / "config.json").read_text())
    assert made["num_hidden_layers"] == 1 and made["layer_types"] == ["full"]
    tensors = load_file(folder / "model.safetensors")
    assert {n: t.shape for n, t in tensors.items()} == {
        n: s for n, s in names.items() if "layers.1" not in n
    }
    assert np.all(tensors["model.layers.0.input_layernorm.weight"] == 1)
    assert 0 < tensors["model.embed_tokens.weight"].std() < 0.1
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert write_untrained_draft(str(target), folder) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
