"""No process is left behind: by stop, by a dead owner, by a killed guardian, by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from turbo_lab.core.errors import EngineError
from turbo_lab.engines import guardian
from turbo_lab.engines.base import GuardedProcess, free_port, http_get, require_free_port

from ...waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process groups as on Linux")

FAMILY = textwrap.dedent(
    """
    import subprocess, sys, time, signal, pathlib
    if sys.argv[2] == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(sys.argv[1]).write_text(str(child.pid))
    time.sleep(600)
    """
)


def alive(pid: int) -> bool:
    return guardian.process_token(pid) is not None


def family(folder: Path, *, kind: str = "mild") -> tuple[GuardedProcess, int, int]:
    """A guarded process with a child of its own: (guarded, parent pid, child pid)."""
    marker = folder / "child"
    process = GuardedProcess([sys.executable, "-c", FAMILY, str(marker), kind], folder / "s", {})
    process.start()
    assert wait_until(lambda: marker.exists() and marker.read_text() and process.status.exists())
    return process, json.loads(process.status.read_text())["pgid"], int(marker.read_text())


def test_stop_ends_the_whole_group(tmp_path: Path) -> None:
    process, parent, child = family(tmp_path)
    assert alive(parent) and alive(child)
    process.stop()
    assert not alive(parent) and not alive(child) and not process.alive()
    assert "signal SIGTERM" in json.loads(process.status.read_text())["reason"]
    process.stop()  # twice is fine


def test_killed_guardian_takes_the_server_along(tmp_path: Path) -> None:
    process, parent, _ = family(tmp_path)
    os.kill(int(process.guard_token.split("-")[0]), signal.SIGKILL)
    assert wait_until(lambda: not alive(parent))


def test_server_goes_when_its_owner_is_killed(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from turbo_lab.engines.base import GuardedProcess
        GuardedProcess([sys.executable, "-c", "import time; time.sleep(600)"],
                       Path({str(tmp_path)!r}) / "s", {{}}).start()
        time.sleep(600)
    """),
        ]
    )
    status = tmp_path / "s" / "status.json"
    try:
        assert wait_until(status.exists)
        server = json.loads(status.read_text())["pgid"]
        assert alive(server)
    finally:
        owner.kill()  # no chance to clean up, and a zombie until it is reaped
    assert wait_until(lambda: not alive(server))
    assert wait_until(lambda: "lease" in (json.loads(status.read_text())["reason"] or ""))
    owner.wait()


def test_second_lease_keeps_the_server(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    process = GuardedProcess(
        [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "s", {}
    )
    process.start()
    own = tmp_path / "s" / "leases" / guardian.process_token(os.getpid())
    guardian.add_lease(tmp_path / "s" / "leases", other.pid)
    own.unlink()
    time.sleep(4 * guardian.POLL_S)
    assert process.alive()
    other.kill()
    other.wait()
    assert wait_until(lambda: not process.alive())


def test_recycled_process_id_is_no_lease(tmp_path: Path) -> None:
    (tmp_path / f"{os.getpid()}-1").touch()  # our id, another start time
    assert not guardian.has_living_lease([tmp_path])
    guardian.add_lease(tmp_path)
    assert guardian.has_living_lease([tmp_path])


@pytest.mark.slow
def test_stubborn_group_is_killed(tmp_path: Path) -> None:
    _, parent, child = family(tmp_path, kind="stubborn")
    guardian.stop_group(parent, timeout_s=0.5)
    assert wait_until(lambda: not alive(parent) and not alive(child))


def test_server_dying_while_starting_shows_the_logs_end(tmp_path: Path) -> None:
    process = GuardedProcess(
        [sys.executable, "-c", "print('first'); raise SystemExit('no luck')"], tmp_path / "s", {}
    )
    process.start()
    with pytest.raises(EngineError, match="(?s)ended while starting.*exit code 1.*no luck"):
        process.wait_for(lambda: False, timeout_s=120, what="a server")


def test_command_that_cannot_run_is_reported(tmp_path: Path) -> None:
    process = GuardedProcess([str(tmp_path / "absent")], tmp_path / "s", {})
    process.start()
    with pytest.raises(EngineError, match=r"(?s)exit code 127.*cannot run .*absent"):
        process.wait_for(lambda: False, timeout_s=120, what="a server")


def test_timeout_stops_the_server(tmp_path: Path) -> None:
    process, parent, _ = family(tmp_path)
    with pytest.raises(EngineError, match=r"not ready within 0 s and was stopped"):
        process.wait_for(lambda: False, timeout_s=0.2, what="a server")
    assert not alive(parent)


def test_unwritable_folder_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a file where the folder should be")
    process = GuardedProcess(["true"], tmp_path / "s", {})
    with pytest.raises(EngineError, match="TURBO_LAB_CACHE"):
        process.start()


def test_port_checks() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Exception, match=rf"port {port} is taken"):
            require_free_port(port)
        with pytest.raises(OSError):
            http_get(f"http://127.0.0.1:{free_port()}", "/")
    with pytest.raises(Exception, match="allowed: 1 to 65535"):
        require_free_port(70000)
    assert require_free_port(free_port())
