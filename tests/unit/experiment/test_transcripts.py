"""Streams as other servers document them, scripted: each is measured without a failure.

The field names and the order of events follow the servers' public API documentation: SGLang and
TensorRT-LLM (OpenAI chat chunks), Text Generation Inference (Messages API), Triton's OpenAI front
end, llama.cpp's server (``timings`` in its last chunk).
"""

from __future__ import annotations

import json

import pytest

from turbo_lab.engines.mock_script import Reply, Script, Step, event
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment.arms import observed
from turbo_lab.experiment.bench import run_bench

from .conftest import quick_options, quick_plan

GAP_S = 0.01


def chunk(delta, *, finish=None, after_s=GAP_S, **more) -> Step:
    body = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more.pop("choice", {})}]}  # noqa: E501  # fmt: skip
    return event({**body, **more}, after_s=after_s)


def usage(tokens=3, **more) -> Step:
    return event({"id": "c-1", "object": "chat.completion.chunk", "choices": [],
                  "usage": {"prompt_tokens": 16, "completion_tokens": tokens,
                            "total_tokens": 16 + tokens}, **more})  # fmt: skip


DONE = event("[DONE]")
STREAMS = {
    # The role comes with an empty text; finish has its own empty chunk and a matched_stop field.
    "sglang": (
        chunk({"role": "assistant", "content": ""}, choice={"matched_stop": None}),
        *(chunk({"role": None, "content": t, "reasoning_content": None})
          for t in (" a", " b", " c")),
        chunk({"role": None, "content": None}, finish="length", choice={"matched_stop": None}),
        usage(), DONE,
    ),
    # Every delta repeats the role; no [DONE]-less end; the fingerprint names the version.
    "tgi": (
        *(chunk({"role": "assistant", "content": t}, choice={"logprobs": None},
                system_fingerprint="3.3.6-sha", usage=None) for t in (" a", " b")),
        chunk({"role": "assistant", "content": " c"}, finish="length", usage=None),
        usage(), DONE,
    ),
    "tensorrt-llm": (
        chunk({"role": "assistant", "content": None, "reasoning_content": None, "tool_calls": []},
              choice={"stop_reason": None}),
        *(chunk({"role": None, "content": t, "tool_calls": []}) for t in (" a", " b")),
        chunk({"role": None, "content": " c", "tool_calls": []}, finish="length"),
        usage(), DONE,
    ),
    # The front end sends the role first and no usage chunk unless it is asked; here it ignores it.
    "triton": (
        chunk({"role": "assistant", "content": "", "tool_calls": None}, system_fingerprint=None),
        *(chunk({"role": "assistant", "content": t}) for t in (" a", " b", " c")),
        chunk({"content": ""}, finish="length"), DONE,
    ),
    # The first chunk has a null content; the last one carries timings beside the usage.
    "llama.cpp": (
        chunk({"role": "assistant", "content": None}),
        *(chunk({"content": t}) for t in (" a", " b", " c")),
        chunk({}, finish="length"),
        usage(timings={"prompt_n": 16, "predicted_n": 3, "predicted_ms": 30.0}), DONE,
    ),
    # Reasoning first, in its own field: the first token is a reasoning token.
    "reasoning": (
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "hm"}), chunk({"reasoning_content": " so"}),
        chunk({"content": "a"}, finish="stop"), usage(), DONE,
    ),
}  # fmt: skip
COMMENT = Step(0.0, b": keep-alive\r\n\r\n", "other")


@pytest.mark.parametrize("name", STREAMS)
def test_the_stream_is_measured(name, tmp_path):
    script = Script(replies=(Reply(steps=(COMMENT, *STREAMS[name])),))
    with MockServer(script) as server:
        run = run_bench(
            server.base_url, plan=quick_plan(requests=5, concurrency=1, output_tokens=3,
                                             input_tokens=16, warmup=0),
            out=tmp_path, options=quick_options(),
        )  # fmt: skip
    gates = {g.name: g for g in run.record.gates}
    assert gates["failures"].passed is True, gates["failures"].detail
    summary = observed(run.record, "summary")
    assert summary["succeeded"] == 5
    first_text = 2 if name not in ("tgi",) else 1
    ttft = next(m for m in run.record.measurements if m.name == "ttft_s")
    assert ttft.value >= (first_text - 0.5) * GAP_S, "the empty role chunk is no first token"
    counted = observed(run.record, "lengths")["output_tokens_mean"]
    assert counted == (None if name == "triton" else 3.0), "unknown is unknown, never one a chunk"
    e2e = next(m for m in run.record.measurements if m.name == "e2e_s")
    assert e2e.value >= ttft.value  # equal where a busy machine hands out the stream at once


FACTS = {
    "/get_server_info": ("sglang", {"model_path": "/m/x", "version": "0.5.23", "dtype": "bf16",
                                    "max_running_requests": 8, "internal_states": [{"a": 1}]}),
    "/info": ("text-generation-inference", {"model_id": "x", "version": "3.3.6",
                                            "max_total_tokens": 4096, "router": "tgi"}),
    "/props": ("llama.cpp", {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 4,
                             "build_info": "b6000", "chat_template": "x" * 900}),
    "/version": ("vllm", {"version": "0.32.0"}),
}  # fmt: skip


@pytest.mark.parametrize("path", FACTS)
def test_servers_are_known_by_what_only_they_answer(path, monkeypatch):
    from turbo_lab.client.stream import Target
    from turbo_lab.experiment import ask, server_facts, settings

    name, answer = FACTS[path]
    pages = {path: answer, "/v1/models": {"data": [{"id": "m", "max_model_len": 4096}]}}
    monkeypatch.setattr(ask, "get_json", lambda t, p, **_: pages.get(p))
    monkeypatch.setattr(ask, "get", lambda t, p, **_: None)
    monkeypatch.setattr(ask, "reachable", lambda t, **_: True)
    found = server_facts.read_server(Target("http://192.0.2.1:80"), model="m")
    assert found.engine.name == name and found.engine.version
    flat = settings.of_engine(found.engine)
    assert flat["config.max_model_len"] == 4096
    assert "internal_states" not in json.dumps(flat) and "chat_template" not in json.dumps(flat)


@pytest.mark.parametrize("answer", [[], "text", 7, None, {"data": 3}, {"data": [None, {"x": 1}]}])
def test_garbage_facts_are_no_facts(answer, monkeypatch):
    from turbo_lab.client.stream import Target
    from turbo_lab.experiment import ask, server_facts

    monkeypatch.setattr(ask, "get_json", lambda t, p, **_: answer)
    monkeypatch.setattr(ask, "get", lambda t, p, **_: b"\xff\xfe garbage {")
    monkeypatch.setattr(ask, "reachable", lambda t, **_: True)
    found = server_facts.read_server(Target("http://192.0.2.1:80"), model="m")
    assert found.engine.name == "unknown" and found.engine.version is None
