from __future__ import annotations

import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.records.redact import HIDDEN, anonymise, redact

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=10), v, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_redacting_twice_changes_nothing_more(value):
    assert redact(redact(value)) == redact(value)
    assert anonymise(anonymise(value)) == anonymise(value)


@pytest.mark.parametrize(
    "key",
    ["api_key", "API-KEY", "OPENAI_API_KEY", "hf_token", "HF_TOKEN", "token", "access_token",
     "HUGGING_FACE_HUB_TOKEN", "password", "db_passwd", "client_secret", "Authorization",
     "aws_secret_access_key", "credentials", "set_cookie"],
)  # fmt: skip
def test_values_under_secret_names_are_hidden(key):
    assert redact({key: "s3cr3t", "n": {key: ["a", None]}}) == {
        key: HIDDEN,
        "n": {key: [HIDDEN, None]},
    }


@pytest.mark.parametrize(
    "key",
    ["max_tokens", "eos_token", "bos_token", "pad_token", "tokens", "token_ids", "tokenizer",
     "first_token", "kv_pool_tokens", "key", "keys", "monkey", "tpot_s", "max_num_batched_tokens"],
)  # fmt: skip
def test_counts_and_special_tokens_stay(key):
    assert redact({key: "<|im_start|>"}) == {key: "<|im_start|>"}
    assert redact({"token": 5, "api_key": None}) == {"token": 5, "api_key": None}


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefgh12345678",
        "using hf_abcdefghijklmnopqrstuvwxyz",
        "key sk-proj-abcdefghijklmnop1234",
        "ghp_abcdefghijklmnopqrstuvwxyz0123",
        "AKIAABCDEFGHIJKLMNOP",
        "serve --api-key hunter2hunter2 --port 1",
        "serve --api-key=hunter2hunter2",
        "HF_TOKEN=hunter2hunter2 vllm",
        "api_key='hunter2hunter2'",
        "https://ada:hunter2hunter2@example.org/simple",
    ],
)
def test_secrets_inside_text_are_hidden(text):
    clean = redact(text)
    assert HIDDEN in clean
    for secret in ("hunter2", "abcdefgh", "ABCDEFGH"):
        assert secret not in clean


@pytest.mark.parametrize(
    "text",
    [
        "block_size=128, num_gpu_blocks=182",
        "Maximum concurrency for 2,048 tokens per request: 22.75x",
        "kv_cache_dtype='auto' max_tokens=128",
        "http://127.0.0.1:8000/v1/chat/completions",
        "basic block",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "10 tokens/s and 3 a/b/c",
        "nvidia-cublas 12.8.4.1",
    ],
)
def test_ordinary_text_stays(text):
    assert redact(text) == text and anonymise(text) == text


def test_a_secret_after_its_flag_is_hidden():
    words = ["serve", "--api-key", "abc", "--port", "80"]
    assert redact(words) == ["serve", "--api-key", HIDDEN, "--port", "80"]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/home/ada/x/y.log", "~/x/y.log"),
        ("/Users/ada/x", "~/x"),
        (r"C:\Users\ada\x", r"~\x"),
        ("model=/root/.cache/m", "model=~/.cache/m"),
        ("file:///home/ada/x", "file://~/x"),
        ("/rooted/x", "/rooted/x"),
    ],
)
def test_user_names_in_paths_are_taken_out(text, clean):
    assert redact(text) == clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("log at /srv/runs/7/server.log.", "log at <path>/server.log."),
        ("['/opt/m/a.bin', '/tmp/b/c']", "['<path>/a.bin', '<path>/c']"),
        (r"D:\models\smol\a.bin", "<path>/a.bin"),
        ("http://10.2.3.4:8000/v1/models", "http://[address]:8000/v1/models"),
        ("GET /v1/chat/completions", "GET /v1/chat/completions"),
        ("~/models/smol", "~/models/smol"),
    ],
)
def test_places_are_taken_out_for_publication(text, clean):
    assert anonymise(text) == clean


def test_the_hosts_name_is_taken_out(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "lab-7.example.org")
    assert anonymise("on lab-7.example.org and lab-7 now") == "on [host] and [host] now"
    monkeypatch.setattr(socket, "gethostname", lambda: "main")
    assert anonymise("branch main") == "branch main"


@pytest.mark.parametrize("piece", ["a", "a_", "/a", "key=", "a:\\\\", "a b ", "=", "--token"])
def test_long_text_takes_time_in_proportion(piece):
    begin = time.perf_counter()
    anonymise(piece * (400_000 // len(piece)))
    assert time.perf_counter() - begin < 20  # a quadratic pattern would take minutes


def test_keys_are_never_changed():
    assert list(anonymise({"/home/ada/x": 1})) == ["/home/ada/x"]
