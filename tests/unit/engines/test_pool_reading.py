from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines import pool_reading
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.base import GuardedProcess
from turbo_lab.engines.pool_reading import pool_case, read_pools, told
from turbo_lab.engines.vllm_server import VllmServer

ARGS = VllmArgs.make(model="org/name")
POOL = ("INFO CPU KV cache size: 23,296 tokens, Maximum concurrency for 2,048 tokens per request: "
        "11.38x")  # fmt: skip
REFUSAL = (
    "ValueError: To serve at least one request with the model's max seq len (32768), (1.41 GiB KV "
    "cache is needed, which is larger than the available KV cache memory (0.99 GiB). Based on the "
    "available memory, the estimated maximum model length is 23168. Try increasing"
)


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    """Servers whose process prints one line and then sleeps or ends, instead of vLLM."""
    made: list[VllmServer] = []

    def script(line: str, *, ends: bool = False) -> None:
        class Scripted(VllmServer):
            def __init__(self, args):
                self.args, self.port, self.load_s = args, 1, None
                code = f"import time; print({line!r}, flush=True); time.sleep({0 if ends else 60})"
                folder = Path(tempfile.mkdtemp(dir=tmp_path))  # two starts run side by side
                self.process = GuardedProcess([sys.executable, "-c", code], folder, {})
                made.append(self)

        monkeypatch.setattr(pool_reading, "VllmServer", Scripted)

    yield script
    assert not any(server.alive() for server in made)


def test_a_pool_is_read_from_the_line_and_the_start_is_ended(scripted):
    scripted(POOL)
    reading = read_pools({"a": ARGS, "b": ARGS.replace(dtype="bfloat16")})["a"]
    assert reading["tokens"] == 23_296 and reading["max_concurrency"] == 11.38
    assert not reading["refused"] and reading["reason"] is None


def test_a_refusal_is_a_reading_too(scripted):
    scripted(REFUSAL, ends=True)
    found = read_pools({"a": ARGS})
    assert found["a"]["refused"] and found["a"]["tokens"] is None
    assert told(found, "a", "needed_gib") == 1.41
    assert told(found, "a", "longest_tokens") == 23_168
    with pytest.raises(UnmeasuredError, match="refused to start"):
        told(found, "a")


def test_a_start_that_dies_otherwise_gives_its_reason(scripted):
    scripted("RuntimeError: no such kernel", ends=True)
    found = read_pools({"a": ARGS})
    assert not found["a"]["refused"]
    with pytest.raises(UnmeasuredError, match="ended while starting"):
        told(found, "a")


def test_what_was_not_asked_is_unmeasured():
    for readings in (None, {}):
        with pytest.raises(UnmeasuredError, match="no engine was asked for a"):
            told(readings, "a")


def test_the_running_server_answers_for_itself(monkeypatch, tmp_path):
    class Running:
        args, load_s, log = ARGS, 31.0, tmp_path / "server.log"

        def cache_config(self):
            return {"num_gpu_blocks": "182", "block_size": "128"}

        def kv_cache_tokens(self):
            return 23_296

    Running.log.write_text(POOL)
    case = pool_case(ARGS, dtype="float32", kv_cache_gib=1)  # the CPU's default, spelled out
    reading = read_pools({"a": case}, running=Running())["a"]
    assert (reading["blocks"], reading["block_tokens"], reading["tokens"]) == (182, 128, 23_296)


def test_a_case_changes_only_what_it_says():
    case = pool_case(ARGS, dtype="bfloat16", kv_cache_gib=2)
    assert case == ARGS.replace(dtype="bfloat16", kv_cache_gib=2)
    long = pool_case(ARGS, dtype="float32", kv_cache_gib=1, max_model_len=32_768)
    assert dict(long.env)["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] == "1" and long.max_model_len == 32_768
    gpu = pool_case(ARGS.replace(device="gpu"), dtype="bfloat16", kv_cache_gib=2)
    assert gpu.gpu_memory_utilization < 0.5 and "--kv-cache-memory-bytes" in gpu.flags()
