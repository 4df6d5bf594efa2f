"""``vllm bench serve`` as a process: its result read, its failures told. No vLLM is needed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core import host
from turbo_lab.core.errors import EngineError, MissingDependencyError, UsageError
from turbo_lab.core.processes import process_token
from turbo_lab.engines import vllm_bench, vllm_cli
from turbo_lab.engines.vllm_bench import BenchResult, parse_result, per_run, run_bench

VERSION = "0.32.0+cpu"
# Three requests: 5 tokens, 1 token, one that failed. The tool gives a failed one zeros.
RAW: dict[str, Any] = {
    "duration": 2.0, "completed": 2, "failed": 1, "total_output_tokens": 6,
    "output_throughput": 3.0, "median_ttft_ms": 150.0, "median_tpot_ms": 20.0,
    "ttfts": [0.1, 0.2, 0.0], "latencies": [0.18, 0.2, 0.0], "output_lens": [5, 1, 0],
    "input_lens": [7, 7, 7], "errors": ["", "", "Traceback ...\nServerDisconnectedError\n"],
}  # fmt: skip


def parsed(**changes: Any) -> BenchResult:
    return parse_result({**RAW, **changes}, command=["vllm"], asked=3, version=VERSION)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Replace the tool by a script; returns a function that takes the script's text."""
    monkeypatch.setattr(vllm_cli, "vllm_version", lambda: VERSION)

    def use(text: str) -> None:
        script = tmp_path / "tool.py"
        script.write_text(text)
        monkeypatch.setattr(vllm_cli, "vllm_command", lambda *a: [sys.executable, str(script), *a])

    return use


def ask(prompts: list[str], **changes: Any) -> BenchResult:
    asked = {
        "base_url": "http://127.0.0.1:1", "model": "lab", "tokenizer": "/models/small",
        "output_tokens": 4, "concurrency": 2,
    }  # fmt: skip
    return run_bench(prompts, **{**asked, **changes})


def test_only_requests_that_succeeded_have_samples() -> None:
    result = parsed()
    assert result.ttft_s == (0.1, 0.2) and result.e2e_s == (0.18, 0.2)
    assert result.tpot_s == pytest.approx((0.02,))  # a one-token reply has no pace
    assert (result.completed, result.failed, result.asked) == (2, 1, 3)
    assert result.errors == ("Traceback ...\nServerDisconnectedError",)
    assert (result.median_ttft_s, result.median_tpot_s) == (0.15, 0.02)


def test_all_failed_is_no_data_and_not_zero() -> None:
    """The tool prints medians of 0.0 and a throughput of 0.0 then."""
    result = parsed(completed=0, failed=3, errors=["x"] * 3, ttfts=[0.0] * 3, median_ttft_ms=0.0)
    assert result.ttft_s == ()
    numbers = (result.median_ttft_s, result.median_tpot_s, result.output_rate_tok_s)
    assert numbers == (None, None, None)
    assert per_run([result]) == {"TTFT": [None], "TPOT": [None], "throughput": [None]}


def test_replies_of_one_token_have_no_median_tpot() -> None:
    assert parsed(output_lens=[1, 1, 0], median_tpot_ms=0.0).median_tpot_s is None


def test_stored_and_read_again() -> None:
    result = parsed()
    assert BenchResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


@pytest.mark.parametrize("field", ["ttfts", "errors", "output_throughput", "completed"])
def test_changed_format_names_the_field(field: str) -> None:
    raw = {key: value for key, value in RAW.items() if key != field}
    with pytest.raises(EngineError, match=rf"'{field}'.*0\.32"):
        parse_result(raw, command=[], asked=3, version=VERSION)


def test_the_tool_gets_the_prompts_and_its_result_is_read(tool: Any) -> None:
    tool(
        "import json, sys\n"
        "a = dict(zip(sys.argv[3::2], sys.argv[4::2]))\n"
        "prompts = [json.loads(x)['prompt'] for x in open(a['--dataset-path'])]\n"
        f"raw = {RAW!r}\n"
        "raw['errors'] = ['', '', ''.join(prompts) + a['--max-concurrency']]\n"
        "open(a['--result-dir'] + '/' + a['--result-filename'], 'w').write(json.dumps(raw))\n"
    )
    result = ask(["a b", "分布式"])
    assert result.errors == ("a b分布式2",)
    assert result.version == VERSION
    assert "/" not in " ".join(result.command).replace("/v1/completions", "").replace("://", "")
    assert {"prompts.jsonl", "small", "--ignore-eos"} <= set(result.command)


def test_a_failing_tool_is_an_error_with_its_last_words(tool: Any) -> None:
    tool("import sys; print('no such model'); sys.exit(3)")
    with pytest.raises(EngineError, match=r"(?s)code 3.*no such model"):
        ask(["a"])


def test_the_tool_sends_nothing_to_this_machine_through_a_proxy(
    tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "intranet.example")
    monkeypatch.delenv("NO_PROXY", raising=False)
    tool("import os, sys; print(os.environ['no_proxy'], os.environ['NO_PROXY']); sys.exit(3)")
    with pytest.raises(EngineError, match=r"intranet\.example,127\.0\.0\.1,localhost 127\.0"):
        ask(["a"])


def test_a_silent_tool_is_an_error(tool: Any) -> None:
    tool("print('done, but wrote nothing')")
    with pytest.raises(EngineError, match=r"(?s)no readable result.*wrote nothing"):
        ask(["a"])


def test_a_hanging_tool_is_ended_with_its_children(tool: Any, tmp_path: Path) -> None:
    mark = tmp_path / "child"
    tool(
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(mark)!r}).write_text(str(child.pid))\n"
        "print('waiting', flush=True); time.sleep(600)"
    )
    with pytest.raises(EngineError, match=r"(?s)not done within 3 s.*waiting"):
        ask(["a"], timeout_s=3)
    deadline = time.monotonic() + 60
    while (living := process_token(int(mark.read_text()))) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert living is None


@pytest.mark.parametrize("wrong", [{"output_tokens": 0}, {"concurrency": 0}, {"prompts": []}])
def test_senseless_calls_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        ask(wrong.pop("prompts", ["a"]), **wrong)


def test_missing_vllm_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "package_version", lambda _: None)
    with pytest.raises(MissingDependencyError, match="install"):
        ask(["a"])


def test_arguments_are_a_closed_loop_without_hidden_warm_up(tmp_path: Path) -> None:
    words = vllm_bench.bench_arguments(
        9, folder=tmp_path, base_url="http://h", model="m", tokenizer="t", output_tokens=4,
        concurrency=3,
    )  # fmt: skip
    assert words[:2] == ["bench", "serve"]
    assert "--num-warmups" not in words and "--request-rate" not in words
    assert words[words.index("--custom-output-len") + 1] == "4"
