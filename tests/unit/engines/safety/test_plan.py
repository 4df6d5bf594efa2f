"""Flags and environment of a server, read as vLLM reads them."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.safety.flags import flag_rows
from turbo_lab.engines.safety.machine import running_plan
from turbo_lab.engines.safety.plan import FLAGS, Plan, flags_of, is_loopback
from turbo_lab.engines.safety.source import GUARDED_IN_0_32, MIDDLEWARE, guarded_prefixes

KEY = "k" * 32


def plan(*words: str, **env: str) -> Plan:
    found = Plan.of_command(["vllm", "serve", "m", *words], env=env)
    assert found is not None
    return found


def statuses(one: Plan) -> dict[str, str]:
    return {row.id: row.status for row in flag_rows(one)}


def test_the_last_flag_counts_and_no_takes_back():
    assert plan("--host", "127.0.0.1", "--host=0.0.0.0").host == "0.0.0.0"
    assert "trust-remote-code" not in plan("--trust-remote-code", "--no-trust-remote-code").flags
    assert plan("--allowed-origins", '["*"]', "--port", "1").flags["allowed-origins"] == '["*"]'
    assert plan("--host", "::1", "--port", "8000").model == "m"


@pytest.mark.parametrize("word", ["--trust_remote_code", "--trust-rem", "--trust-remote-code=true"])
def test_underscores_and_beginnings_are_the_same_flag(word):
    assert "trust-remote-code" in plan(word).flags


@given(st.sampled_from([flag for flag in FLAGS if flag != "config"]), st.integers(3, 40))
def test_a_beginning_that_fits_one_flag_is_that_flag_and_else_no_known_one(name, length):
    begun = name[:length]
    fits = [flag for flag in FLAGS if flag.startswith(begun)]
    want = begun if begun in FLAGS else fits[0] if len(fits) == 1 else begun
    if not begun.startswith("no-"):
        assert list(flags_of([f"--{begun}", "x"])) == [want]


def test_a_config_file_counts_where_the_command_line_is_silent(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("host: 0.0.0.0\ntrust_remote_code: true\nenable-log-requests: false\n")
    read = plan("--config", str(path)).flags
    assert read["host"] == "0.0.0.0" and "trust-remote-code" in read
    assert "enable-log-requests" not in read
    assert plan("--config", str(path), "--host", "127.0.0.1").host == "127.0.0.1"
    with pytest.raises(UsageError, match="cannot be read"):
        plan("--config", str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("host", "private"),
    [("127.0.0.1", True), ("127.3.2.1", True), ("localhost", True), ("::1", True), ("[::1]", True),
     ("unix:/run/x", True), ("", False), ("0.0.0.0", False), ("::", False), ("10.0.0.4", False),
     ("gpu-1", False)],
)  # fmt: skip
def test_which_addresses_stay_on_the_machine(host, private):
    assert is_loopback(host) is private


def test_a_plain_command_listens_everywhere_and_ours_does_not():
    assert statuses(plan())["loopback_only"] == "fail"
    ours = Plan.of_args(VllmArgs.make(model="m"))
    assert ours.host == "127.0.0.1" and statuses(ours)["loopback_only"] == "ok"
    assert statuses(plan("--uds", "/run/vllm.sock"))["loopback_only"] == "ok"


@pytest.mark.parametrize(
    ("words", "env", "row", "want"),
    [
        (["--host", "::1"], {}, "api_key", "warn"),
        ([], {}, "api_key", "fail"),
        ([], {"VLLM_API_KEY": KEY}, "api_key", "ok"),
        ([], {"VLLM_API_KEY": ""}, "api_key", "fail"),
        ([], {"VLLM_API_KEY": "abc"}, "api_key", "warn"),
        ([f"--api-key={KEY}"], {}, "key_hidden", "fail"),
        ([], {"VLLM_API_KEY": KEY}, "key_hidden", "ok"),
        (["--ssl-certfile", "c.pem"], {}, "encrypted", "ok"),
        ([], {}, "encrypted", "fail"),
        ([], {"VLLM_SERVER_DEV_MODE": "1"}, "developer_endpoints", "fail"),
        (["--host", "::1"], {"VLLM_SERVER_DEV_MODE": "1"}, "developer_endpoints", "warn"),
        ([], {"VLLM_SERVER_DEV_MODE": "0"}, "developer_endpoints", "ok"),
        (["--enable-log-requests"], {}, "prompts_not_logged", "warn"),
        (["--enable-log-requests"], {"VLLM_LOGGING_LEVEL": "debug"}, "prompts_not_logged", "fail"),
        (["--enable-log-requests", "--log-level", "DEBUG"], {}, "prompts_not_logged", "fail"),
        (["--enable-log-requests", "--enable-log-outputs"], {}, "prompts_not_logged", "fail"),
        (["--no-enable-log-requests"], {}, "prompts_not_logged", "ok"),
        (["--allowed-local-media-path", "/"], {}, "risky_flags", "warn"),
        (["--allowed-origins", '["*"]'], {}, "risky_flags", "warn"),
        ([], {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}, "risky_flags", "warn"),
        ([], {}, "risky_flags", "ok"),
    ],
)  # fmt: skip
def test_each_flag_and_variable_has_its_row(words, env, row, want):
    assert statuses(plan(*words, **env))[row] == want


def test_no_row_shows_the_key():
    for words, env in (([f"--api-key={KEY}"], {}), (["--api-key", KEY], {}),
                       ([], {"VLLM_API_KEY": KEY})):  # fmt: skip
        text = str(flag_rows(plan(*words, **env)))
        assert KEY not in text
    assert statuses(plan())["records_redacted"] == "ok"


def test_a_redaction_that_lets_a_key_through_fails_the_row(monkeypatch):
    monkeypatch.setattr("turbo_lab.engines.safety.flags.redact", lambda value: value)
    assert statuses(plan())["records_redacted"] == "fail"


def test_a_config_file_of_a_running_server_that_cannot_be_read_is_no_error():
    assert running_plan(["vllm", "serve", "m", "--config", "gone.yaml"], env={}) is None
    assert running_plan(["sshd"], env={}) is None
    assert running_plan(["vllm", "serve", "m"], env={}) is not None


def test_the_guard_is_read_from_the_installed_source():
    prefixes, where = guarded_prefixes()
    assert "/v1" in prefixes and "/metrics" not in prefixes
    assert where.startswith("vLLM 0.")
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("needs the cpu environment")
    tree = ast.parse((Path(spec.origin).parent / MIDDLEWARE).read_text(encoding="utf-8"))
    names = {target.id: row.value for row in tree.body if isinstance(row, ast.Assign)
             for target in row.targets if isinstance(target, ast.Name)}  # fmt: skip
    assert prefixes == ast.literal_eval(names["GUARDED_PREFIX"]) == GUARDED_IN_0_32
