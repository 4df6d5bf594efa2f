from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.prompts import warmup_like, words
from turbo_lab.workload.request import Request, workload_digest


def test_chat_body():
    r = Request("hi", model="m", max_tokens=5, extra={"ignore_eos": True, "temperature": 0.7})
    assert r.path == "/v1/chat/completions"
    assert r.body() == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 5,
        "temperature": 0.7,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "ignore_eos": True,
    }


def test_completions_body_with_token_ids():
    r = Request([1, 2, 3], endpoint="completions", usage="final", temperature=None)
    assert r.path == "/v1/completions"
    assert r.body() == {
        "prompt": [1, 2, 3],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_messages_pass_through_and_usage_can_be_left_out():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    body = Request(messages, usage="none").body()
    assert body["messages"] == messages
    assert "stream_options" not in body and "model" not in body


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"endpoint": "chats"}, "chat"),
        ({"usage": "all"}, "continuous"),
        ({"max_tokens": 0}, "at least 1"),
        ({"prompt": [1, 2]}, "completions"),
        ({"prompt": [{"role": "user", "content": "x"}], "endpoint": "completions"}, "chat"),
    ],
)
def test_what_no_server_accepts_is_refused(facts, word):
    with pytest.raises(UsageError, match=word):
        Request(**{"prompt": "x", **facts})


def test_digest_sees_order_content_and_nothing_else():
    a, b = Request("a"), Request("b")
    assert workload_digest([a, b]) == workload_digest([Request("a", request_id="7"), b])
    assert workload_digest([a, b]) != workload_digest([b, a])
    assert workload_digest([a]) != workload_digest([Request("a", max_tokens=1)])


@pytest.mark.parametrize(
    "prompt", ["one two three", [5, 6, 7], [{"role": "user", "content": "one two three"}]]
)
def test_w17_warm_up_prompts_differ_from_the_first_token_on(prompt):
    endpoint = "completions" if isinstance(prompt[0], int) else "chat"
    measured = [Request(prompt, endpoint=endpoint, max_tokens=3)]
    warm = warmup_like(measured, count=20)
    assert len({w.prompt_key() for w in warm}) > 5
    for w in warm:
        assert w.prompt_key() != measured[0].prompt_key()
        if endpoint == "completions":
            assert w.prompt[0] != prompt[0] and len(w.prompt) == 3
        else:
            assert w.prompt.split()[0] == "Warm-up" and len(w.prompt.split()) == 4
        assert w.max_tokens == 3


def test_words_are_repeatable_and_seeds_differ():
    assert words(50, seed=1) == words(50, seed=1)
    assert words(50, seed=1).split()[:3] != words(50, seed=2).split()[:3]
    assert len(words(50, seed=3).split()) == 50
