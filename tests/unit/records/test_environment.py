from __future__ import annotations

import re
import socket
import subprocess

from turbo_lab.core import host
from turbo_lab.records import environment as module
from turbo_lab.records.environment import capture_environment, describe_machine, utc_now
from turbo_lab.records.schema import GpuFacts


def test_the_machine_and_its_packages_are_captured(environment):
    assert environment.cores == host.cores_granted()
    assert environment.packages["turbo-lab"] and "vllm" in environment.packages
    assert re.fullmatch(r"[0-9a-f]{40}", environment.git_commit or "0" * 40)
    assert set(environment.threads) >= {"OMP_NUM_THREADS", "VLLM_CPU_KVCACHE_SPACE"}


def test_no_host_name_is_captured(environment):
    name = socket.gethostname()
    assert len(name) < 5 or name not in environment.model_dump_json()


def test_without_git_the_commit_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "repository_root", lambda: tmp_path)
    bare = capture_environment()
    assert bare.git_commit is None and bare.git_dirty is None
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", "")
    assert module._git("rev-parse", "HEAD") is None


def test_thread_settings_are_read(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert capture_environment().threads["OMP_NUM_THREADS"] == "3"


def test_machines_in_words(environment):
    plain = environment.model_copy(update={"cpu": "A CPU", "cores": 1, "gpus": ()})
    assert describe_machine(plain) == "A CPU, 1 core"
    assert describe_machine(plain.model_copy(update={"cores": 2})) == "A CPU, 2 cores"
    card = GpuFacts(name="A GPU", memory_bytes=1, driver="1")
    assert describe_machine(plain.model_copy(update={"gpus": (card,)})) == "A GPU"
    assert describe_machine(plain.model_copy(update={"gpus": (card,) * 4})) == "4 x A GPU"


def test_the_time_is_utc_to_the_second():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", utc_now())


def test_a_repository_around_an_unpacked_archive_is_not_asked(monkeypatch, tmp_path):
    archive = tmp_path / "archive"
    archive.mkdir()
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr(module.host, "repository_root", lambda: archive)
    assert module._git("rev-parse", "HEAD") is None
    monkeypatch.setattr(module.host, "repository_root", lambda: tmp_path)
    assert re.fullmatch(r"[0-9a-f]{40}", module._git("rev-parse", "HEAD") or "")
