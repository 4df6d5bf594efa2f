"""From payloads to chunks: kinds and token counts only as the server says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.client.reply import ReplyReader
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import Timeline


def read(*payloads) -> ReplyReader:
    reader = ReplyReader()
    for index, payload in enumerate(payloads):
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        reader.take(b"", raw, t_s=float(index))
    return reader


def chat(delta, *, finish=None, usage=None):
    out = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return out if usage is None else {**out, "usage": {"completion_tokens": usage}}


def kinds(reader: ReplyReader) -> list[str]:
    return [c.kind for c in reader.chunks]


def tokens(reader: ReplyReader) -> list[int | None]:
    return [c.tokens for c in reader.chunks]


def test_continuous_usage_counts_each_chunk():
    r = read(
        chat({"role": "assistant", "content": ""}, usage=0),
        chat({"content": "a"}, usage=1),
        chat({"content": "bc"}, usage=3),
        chat({"content": ""}, finish="stop", usage=4),
        {"choices": [], "usage": {"completion_tokens": 4}},
        b"[DONE]",
    )
    assert kinds(r) == ["role", "content", "content", "empty", "usage", "done"]
    assert tokens(r) == [0, 1, 2, 1, 0, None]
    assert (r.text, r.finish_reason, r.saw_done) == ("abc", "stop", True)


def test_final_usage_is_not_the_last_chunks_count():
    apart = read(
        chat({"content": "a"}),
        chat({"content": "b"}, finish="stop"),
        {"choices": [], "usage": {"completion_tokens": 2}},
    )
    assert tokens(apart) == [None, None, None]
    inside = read(chat({"content": "a"}), chat({"content": "b"}, finish="stop", usage=2))
    assert tokens(inside) == [None, None]
    assert apart.usage == inside.usage == {"completion_tokens": 2}


def test_one_chunk_reply_with_final_usage_holds_all_tokens():
    assert tokens(read(chat({"content": "abc"}, finish="stop", usage=3))) == [3]


def test_token_ids_count_where_there_is_no_usage():
    r = read({"choices": [{"text": "ab", "token_ids": [5, 6], "finish_reason": None}]})
    assert (kinds(r), tokens(r)) == (["content"], [2])


@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        ({"content": "a"}, "content"),
        ({"content": " "}, "content"),
        ({"refusal": "no"}, "content"),
        ({"reasoning_content": "hm"}, "reasoning"),
        ({"reasoning": "hm"}, "reasoning"),
        ({"tool_calls": [{"index": 0}]}, "tool"),
        ({"role": "assistant"}, "role"),
        ({"role": "assistant", "content": ""}, "role"),
        ({"content": None}, "empty"),
        ({}, "empty"),
    ],
)
def test_kinds(delta, kind):
    assert kinds(read(chat(delta))) == [kind]


def test_trailing_space_is_kept():
    assert read(chat({"content": "a "}), chat({"content": " b\n"})).text == "a  b\n"


@pytest.mark.parametrize(
    "bad", [{"error": {"message": "boom"}}, {"object": "error", "message": "boom"}, b"boom{"]
)
def test_errors_inside_the_stream(bad):
    r = read(chat({"content": "a"}), bad, b"[DONE]")
    assert kinds(r) == ["content", "error", "done"]
    assert "boom" in (r.error or "")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"choices": [{"delta": {"content": "\\ud800"}}]}',
        b'{"n": NaN, "choices": [{"text": "a"}]}',
    ],
    ids=["a lone surrogate", "not a number"],
)
def test_what_python_reads_as_json_is_read(raw):
    assert (kinds(read(raw)), read(raw).error) == (["content"], None)


def test_nesting_without_end_is_an_error_not_a_crash():
    assert kinds(read(b'{"a":' * 100_000 + b"1")) == ["error"]


def test_null_error_field_is_no_error():
    r = read({**chat({"content": "a"}), "error": None})
    assert (kinds(r), r.error) == (["content"], None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "usage",
                    "completion_tokens",
                    "error",
                    "text",
                    "role",
                    "finish_reason",
                    "token_ids",
                    "tool_calls",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON | st.binary(max_size=20), max_size=5))
def test_garbage_never_breaks_the_reader_or_the_summary(items):
    r = read(*items)
    summarize([Timeline(chunks=r.chunks, usage=r.usage, error=r.error)])


@pytest.mark.parametrize("count", [-1, 1.5, "3", True])
def test_impossible_usage_fails_the_request(count):
    r = read(chat({"content": "a"}, usage=count))
    assert r.usage is None and "completion tokens" in r.error


def test_halves_of_a_character_in_two_chunks_are_joined():
    """Servers that cut UTF-16 send an emoji as two JSON escapes; no file holds half of one."""
    parts = (b'"a\\ud83d"', b'"\\ude00b"', b'"\\ud800"')
    r = read(*(b'{"choices": [{"delta": {"content": %b}}]}' % part for part in parts))
    assert r.text == "a\U0001f600b\ufffd"
    assert r.text.encode().decode() == r.text


@pytest.mark.parametrize("count", [-1, "many", 2.5])
def test_an_impossible_prompt_count_fails_the_request(count):
    r = read({"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": 3}})
    assert r.usage is None and r.error == f"usage says {count!r} prompt tokens"
