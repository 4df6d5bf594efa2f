"""Asking the engine: a pool that is predicted, a refusal that keeps the engine's words."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from turbo_lab.core.errors import EngineError, UnmeasuredError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.mock_script import Reply as MockReply
from turbo_lab.engines.mock_script import Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment.quality_prompts import load_prompts
from turbo_lab.models.catalog import load_model
from turbo_lab.precision import engine_kv, engine_kv_script
from turbo_lab.precision.engine_kv import own_words, predicted_pool_tokens, serve_with

REFUSAL = """
(Worker) INFO 12:00:00 starting
(Worker) ERROR Traceback (most recent call last):
(Worker) ERROR NotImplementedError: FP8 KV cache on CPU requires x86 with AVX-512 or AMX.
(APIServer) RuntimeError: Engine core initialization failed. See root cause above.
"""


@pytest.fixture
def args(tmp_path: Path) -> VllmArgs:
    (tmp_path / "config.json").write_text(json.dumps(load_model("smollm2-135m").config))
    return VllmArgs.make(model=str(tmp_path), dtype="float32")


def test_the_root_cause_is_quoted_and_not_its_consequence():
    assert own_words(REFUSAL).startswith("NotImplementedError: FP8 KV cache on CPU requires")
    assert own_words("plain end\n\n") == "plain end"
    assert "without a word" in own_words("")


def test_one_byte_instead_of_four_or_two_makes_four_or_two_times_the_pool(args):
    plain = {d: predicted_pool_tokens(args.replace(dtype=d)) for d in ("float32", "bfloat16")}
    assert plain == {"float32": 23_296, "bfloat16": 46_592}
    for kind in engine_kv.FP8_KINDS:
        for dtype, gain in (("float32", 4), ("bfloat16", 2)):
            found = predicted_pool_tokens(args.replace(dtype=dtype, kv_cache_dtype=kind))
            assert found == gain * plain[dtype]
    assert predicted_pool_tokens(args.replace(model="Qwen/Qwen3-8B")) is None
    assert predicted_pool_tokens(args.replace(device="gpu")) is None
    # Four bits and two scales a head: 2^30 / (30 layers * 3 heads * 72 bytes), in blocks of 128.
    four = predicted_pool_tokens(args.replace(kv_cache_dtype="int4_per_token_head"))
    assert four == 2**30 // (30 * 3 * 72 * 128) * 128


class FakeServer:
    """A mock that speaks, or a start that fails with a log."""

    def __init__(self, log: Path, text: str) -> None:
        self.log, self.model_name = log, "lab"
        log.write_text(text)

    def __enter__(self):
        if "Error" in self.log.read_text():
            raise EngineError("vllm serve ended while starting.")
        speech = Speech(ttft_s=0.01, gap_s=0.02)  # a busy machine must not see it as one burst
        self.mock = MockServer(Script(replies=(MockReply(speech=speech),))).__enter__()
        self.base_url = self.mock.base_url
        return self

    def __exit__(self, *trouble):
        self.mock.__exit__(*trouble)

    def kv_cache_tokens(self) -> int:
        return 93_184


def test_a_start_tells_pool_replies_and_pace(args, tmp_path, monkeypatch):
    log = tmp_path / "server.log"
    monkeypatch.setattr(engine_kv, "VllmServer", lambda asked: FakeServer(log, "fine"))
    found = serve_with(args, "fp8_e5m2", prompts=load_prompts(["facts"], per_kind=2))
    assert found.pool() == found.predicted_tokens == 93_184 and found.unmeasured is None
    assert found.as_predicted
    assert len(found.replies) == 2 and found.tpot_s > 0.005  # 0.02 on an idle machine


def test_a_refused_start_is_unmeasured_with_the_engines_words(args, tmp_path, monkeypatch):
    log = tmp_path / "server.log"
    monkeypatch.setattr(engine_kv, "VllmServer", lambda asked: FakeServer(log, REFUSAL))
    found = serve_with(args, "fp8", prompts=load_prompts(["facts"], per_kind=2))
    assert found.unmeasured.startswith("unmeasured: NotImplementedError: FP8 KV cache")
    assert found.replies == () and found.predicted_tokens == 93_184 and found.as_predicted is None
    with pytest.raises(UnmeasuredError, match="AVX-512"):
        found.pool()


def scripted(monkeypatch, output: str | None) -> list[list[str]]:
    started = []

    class Child(SimpleNamespace):
        pid = 2**22 + 1  # no such process

        def communicate(self, timeout):
            if output is None:
                raise subprocess.TimeoutExpired("script", timeout)
            return output, None

        def wait(self):
            return 0

    def popen(command, **options):
        started.append(command)
        return Child()

    monkeypatch.setattr(engine_kv_script.subprocess, "Popen", popen)
    return started


def test_the_script_hands_over_the_sources_call(args, monkeypatch):
    output = 'log\nCPU KV cache size: 93,184 tokens\nturbo-lab-script: ["一种压缩"]\n'
    started = scripted(monkeypatch, output)
    found = engine_kv_script.run_script(args, max_tokens=8)
    job = json.loads(started[0][-1])
    assert job["llm"]["kv_cache_dtype"] == "fp8_e5m2" and job["llm"]["model"] == args.model
    assert job["prompts"] == [engine_kv_script.SOURCE_PROMPT] and job["max_tokens"] == 8
    assert found.pool_tokens == 93_184 and found.texts == ("一种压缩",)


@pytest.mark.parametrize(("output", "reason"), [(REFUSAL, "AVX-512"), (None, "no answer within")])
def test_a_script_that_ends_early_says_why(args, monkeypatch, output, reason):
    scripted(monkeypatch, output)
    found = engine_kv_script.run_script(args, timeout_s=0.1)
    assert reason in found.unmeasured and found.texts == ()
