"""The rule called vllm-0.32 against vLLM's own client function on the same scripted streams."""

from __future__ import annotations

import asyncio

import pytest

from turbo_lab.client.stream import send_one
from turbo_lab.engines.mock_script import Reply, Script, Step, event, payload
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.metrics.summary import summarize
from turbo_lab.workload.request import Request

pytestmark = [pytest.mark.engine, pytest.mark.alone]
TOLERANCE_S = 0.008  # two definitions differ by 20 ms and more on these streams
TRIES = 5  # each client hears a stream of its own, and other work may delay either


def usage(tokens: int) -> Step:
    return event(payload(usage={"prompt_tokens": 3, "completion_tokens": tokens}))


def text(piece: str, after_s: float, **more) -> Step:
    return event(payload(piece, **more), after_s=after_s)


ROLE_FIRST = (event(payload(role=True)), text("a", 0.05), text("b", 0.03, finish="stop"))
STREAMS = {
    "role apart": (*ROLE_FIRST, usage(2), event("[DONE]", after_s=0.03)),
    "many tokens a chunk": (
        event(payload(role=True), after_s=0.04),
        text("a", 0.0),
        text("bc", 0.04),
        text("de", 0.04, finish="stop"),
        usage(5),
        event("[DONE]", after_s=0.02),
    ),
    "one token": (text("a", 0.03, finish="length"), usage(1), event("[DONE]")),
    "error inside": (text("a", 0.03), event({"error": {"message": "x"}}), event("[DONE]")),
    "truncated": (text("a", 0.03), text("b", 0.03)),
    "no text": (usage(0), event("[DONE]")),
}


def theirs(url: str):
    tool = pytest.importorskip("vllm.benchmarks.lib.endpoint_request_func")
    import aiohttp

    async def ask():
        request = tool.RequestFuncInput(
            prompt="q", api_url=f"{url}/v1/chat/completions", prompt_len=3, output_len=5, model="m"
        )
        async with aiohttp.ClientSession() as session:
            return await tool.async_request_openai_chat_completions(request, session)

    return asyncio.run(ask())


def numbers(found) -> dict[str, list[float]]:
    """What the tool's function tells of a success, under our names."""
    several = bool(found.output_tokens) and found.output_tokens > 1
    tpot = [(found.latency - found.ttft) / (found.output_tokens - 1)] if several else []
    return {"ttft_s": [found.ttft], "itl_s": found.itl, "e2e_s": [found.latency], "tpot_s": tpot}


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_same_stream_same_numbers(name):
    with MockServer(Script(replies=(Reply(steps=STREAMS[name]),))) as server:
        theirs(server.base_url)  # The first call pays for imports.
        for _ in range(TRIES):
            got = theirs(server.base_url)
            reply = send_one(Request("q"), base_url=server.base_url)
            ours = summarize([reply], convention="vllm-0.32")
            assert ours.succeeded == int(got.success)
            if not got.success:
                return
            told = numbers(got)
            same = {key: list(ours[key].values) for key in told}
            if all(same[key] == pytest.approx(told[key], abs=TOLERANCE_S) for key in told):
                return
    assert same == {key: pytest.approx(told[key], abs=TOLERANCE_S) for key in told}
