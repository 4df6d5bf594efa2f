"""``turbo-lab serve`` as a user runs it: ready, answering, and gone after Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from turbo_lab.engines import guardian

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.alone]
COMMAND = [sys.executable, "-m", "turbo_lab.cli.main", "serve"]


def group_of(log: str) -> int:
    """Process group of the server whose log this is."""
    return json.loads((Path(log).parent / "status.json").read_text())["pgid"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_serve_until_it_is_ended(how: signal.Signals) -> None:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    process = subprocess.Popen(
        [*COMMAND, "--json", "--max-model-len", "1024", "--flag=--enable-prefix-caching"],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
        # A background job of a shell ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        facts = json.loads(process.stdout.readline())
        assert facts["kv_cache_tokens"] > 0 and facts["load_s"] > 0
        url = f"{facts['base_url']}/v1/models"
        served = json.loads(urllib.request.urlopen(url, timeout=120).read())["data"][0]
        assert served["id"] == facts["model"] and served["max_model_len"] == 1024
        group = group_of(facts["log"])
        assert guardian.group_members(group)
        os.kill(process.pid, how)
        process.wait(timeout=120)
    finally:
        if process.poll() is None:
            process.kill()
    for _ in range(600):
        if not guardian.group_members(group):
            break
        guardian.time.sleep(0.2)
    assert not guardian.group_members(group)
    if how is signal.SIGINT:
        assert process.returncode in (0, 130)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["./no-such-model"], "does not exist"),
        (["--dtype", "fp99"], "dtype is 'fp99'"),
        (["--flag=--no-such-flag"], "has no flag '--no-such-flag'"),
        (["--mode", "gpux"], "mode is 'gpux'"),
        (["--port", "99999"], "port is 99999"),
    ],
)
def test_wrong_use_is_one_clear_line(arguments: list[str], message: str) -> None:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    text = " ".join((done.stderr + done.stdout).split())
    assert message in text and "Traceback" not in text
