"""Real vLLM on this machine: readiness, effective configuration, pool, and no orphans."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbo_lab.core import host
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines import guardian, local_model, vllm_cli
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.pool import ServerPool, pool_session
from turbo_lab.engines.transformers_server import TransformersServer
from turbo_lab.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.alone]
PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def model() -> str:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    return local_model.resolve_model()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    with pool_session(tmp_path_factory.mktemp("pool")) as session:
        yield session


@pytest.fixture(scope="module")
def server(model: str, pool: ServerPool) -> VllmServer:
    return pool.acquire(VllmArgs.make(model=model, dtype="float32"))


def greedy(base_url: str, name: str, tokens: int = 12) -> str:
    """The greedy continuation, asked with plain urllib so that no code of ours is in the way."""
    import urllib.request

    body = {"model": name, "prompt": PROMPT, "max_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(
        f"{base_url}/v1/completions", data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())["choices"][0]["text"]


def test_prepared_model_is_whole(model: str) -> None:
    assert local_model.is_prepared(Path(model))
    assert local_model.tensor_bytes(model) == 2 * local_model.PARAMETERS


def test_server_answers_and_counts(server: VllmServer) -> None:
    assert 0 < server.load_s < 300
    before = server.counter("vllm:generation_tokens_total")
    assert "Paris" in greedy(server.base_url, server.model_name)
    assert server.counter("vllm:generation_tokens_total") == before + 12
    with pytest.raises(EngineError, match="no 'vllm:absent'"):
        server.counter("vllm:absent")


def test_effective_configuration_is_the_engines_own(server: VllmServer) -> None:
    config = server.effective_config()
    assert config["max_model_len"] == 2048 and config["version"].startswith("0.32")
    assert config["vllm_config"]["model_config"]["dtype"] == "torch.float32"
    blocks, size = (int(config["cache_config"][k]) for k in ("num_gpu_blocks", "block_size"))
    assert config["kv_cache_tokens"] == blocks * size == 23_296
    assert {"log", "weights", "dtype", "load time [s]"} <= server.describe().keys()


def test_pool_shares_equal_arguments_with_other_processes(
    server: VllmServer, pool: ServerPool
) -> None:
    code = (
        "from turbo_lab.engines.pool import shared_server\n"
        "from turbo_lab.engines.args import VllmArgs\n"
        f"print(shared_server(VllmArgs.make(model={server.args.model!r}, dtype='float32')).port)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(out.stdout) == server.port
    assert [s["port"] for s in pool.servers()] == [server.port]


def test_transformers_serve_is_the_greedy_reference(server: VllmServer, model: str) -> None:
    with TransformersServer(model) as reference:
        assert reference.effective_config()["engine"] == "transformers"
        assert greedy(reference.base_url, model) == greedy(server.base_url, server.model_name)
        group = json.loads(reference.process.status.read_text())["pgid"]
    assert not guardian.group_members(group)


def test_flags_of_the_source_are_checked_against_the_parser() -> None:
    known = vllm_cli.known_flags()
    current = ("--served-model-name", "--max-model-len", "--tensor-parallel-size",
               "--gpu-memory-utilization", "--speculative-config")  # fmt: skip
    assert all(flag in known for flag in current)
    assert "--speculative-model" not in known and "--num-speculative-tokens" not in known
    with pytest.raises(UsageError, match=r"no flag '--max-model-length'.*--max-model-len"):
        vllm_cli.check_flags(["--max-model-length"])
    assert "--request-rate" in vllm_cli.known_flags("bench")


def test_server_dying_while_answering(model: str, tmp_path: Path) -> None:
    """Also: the worker's memory limit is real, and a dead server is told from a slow one."""
    server = VllmServer(VllmArgs.make(model=model), folder=tmp_path / "s")
    with server:
        group = json.loads(server.process.status.read_text())["pgid"]
        os.kill(group, signal.SIGKILL)  # the API process; its workers are left to the guardian
        deadline = time.monotonic() + 120
        while server.alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        with pytest.raises(EngineError, match="(?s)the server is gone.*exit code -9.*Last lines"):
            server.get("/health")
    assert not guardian.group_members(group)


def test_truncated_weights_fail_with_the_log(model: str, tmp_path: Path) -> None:
    broken = tmp_path / "model"
    broken.mkdir()
    for path in Path(model).iterdir():
        if path.name != "model.safetensors":
            (broken / path.name).symlink_to(path)
    data = (Path(model) / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(data[: len(data) // 2])
    server = VllmServer(VllmArgs.make(model=str(broken)), folder=tmp_path / "s").start()
    with pytest.raises(EngineError, match="(?s)vllm serve ended while starting.*Last lines of"):
        server.wait_ready()
    assert "afetensor" in server.log.read_text()
    server.stop()


def test_two_processes_prepare_one_model(tmp_path: Path) -> None:
    env = {**os.environ, "TURBO_LAB_CACHE": str(tmp_path)}
    code = "from turbo_lab.engines.local_model import prepare; print(prepare())"
    runs = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [run.communicate(timeout=300)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sum("Model ready" in out for out in outputs) == 1  # one worked, the other waited
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]
    assert local_model.is_prepared(Path(outputs[0].splitlines()[-1]))


def test_no_server_is_left(pool: ServerPool) -> None:
    assert pool.stop_all() >= 0
    assert host.cache_folder().exists() and pool.servers() == []
