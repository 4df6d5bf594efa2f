"""``vllm bench serve``, the engine's own load client, run against a server: a second opinion.

The tool runs as a process of its own through ``vllm_cli`` and leaves a JSON file. Here it gets the
caller's prompts (its ``custom`` data set, in order), so that two clients ask for the same work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.core.host import user_path
from turbo_lab.engines import vllm_cli

RESULT_NAME = "result.json"
PROMPTS_NAME = "prompts.jsonl"
TAIL_CHARS = 1500


@dataclass(frozen=True)
class BenchResult:
    """What the tool reported. Times are seconds on the tool's clock, one entry per request.

    ``ttft_s`` and ``e2e_s`` hold the requests that succeeded; ``tpot_s`` those of more than one
    token. ``median_ttft_s`` and ``median_tpot_s`` are the tool's own, as it printed them (None
    when no request succeeded: it prints 0 then). ``errors`` are the reasons of failed requests.
    """

    version: str
    command: tuple[str, ...]
    asked: int
    completed: int
    failed: int
    duration_s: float
    output_tokens: int
    output_rate_tok_s: float | None
    median_ttft_s: float | None
    median_tpot_s: float | None
    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    e2e_s: tuple[float, ...]
    input_lens: tuple[int, ...]
    output_lens: tuple[int, ...]
    errors: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> BenchResult:
        """Inverse of ``to_dict``."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()})


def run_bench(
    prompts: Sequence[str],
    *,
    base_url: str,
    model: str,
    tokenizer: str,
    output_tokens: int,
    concurrency: int,
    timeout_s: float = 600.0,
) -> BenchResult:
    """Let ``vllm bench serve`` send these prompts to ``/v1/completions`` as a closed loop.

    Greedy, exactly ``output_tokens`` tokens per reply, no warm-up of its own (it would send the
    first measured prompt). The tool's imports take about ten seconds before the first request.

    Args:
        prompts: texts, sent in this order.
        base_url: root of the server.
        model: the name that requests must use.
        tokenizer: folder or Hugging Face id, for the tool's own counting.
        output_tokens: length of every reply, at least 1.
        concurrency: requests in flight.
        timeout_s: limit for the whole run; then its process group is ended.

    Raises:
        UsageError: no prompts, or counts below 1.
        MissingDependencyError: vLLM is not installed; with the install line.
        EngineError: the tool failed, was too slow or wrote no readable result; with its last lines.
    """
    if not prompts or output_tokens < 1 or concurrency < 1:
        raise UsageError(
            f"{len(prompts)} prompts, output_tokens={output_tokens}, concurrency={concurrency}: "
            "each must be at least 1"
        )
    version = vllm_cli.vllm_version()
    with tempfile.TemporaryDirectory(prefix="turbo-lab-bench-") as name:
        folder = Path(name)
        lines = [json.dumps({"prompt": prompt}) for prompt in prompts]
        (folder / PROMPTS_NAME).write_text("\n".join(lines) + "\n")
        arguments = bench_arguments(
            len(prompts), folder=folder, base_url=base_url, model=model, tokenizer=tokenizer,
            output_tokens=output_tokens, concurrency=concurrency,
        )  # fmt: skip
        said = _run(vllm_cli.vllm_command(*arguments), tokenizer=tokenizer, timeout_s=timeout_s)
        raw = _read(folder / RESULT_NAME, said=said)
    shown = ["vllm", *(Path(a).name if a.startswith(("/", "~")) else a for a in arguments)]
    return parse_result(raw, command=shown, asked=len(prompts), version=version)


def bench_arguments(
    count: int, *, folder: Path, base_url: str, model: str, tokenizer: str, output_tokens: int,
    concurrency: int,
) -> list[str]:  # fmt: skip
    """The words after ``vllm``: a closed loop over a file of prompts, every sample saved."""
    pairs = {
        "--backend": "openai",
        "--base-url": base_url,
        "--endpoint": "/v1/completions",
        "--model": tokenizer,
        "--served-model-name": model,
        "--dataset-name": "custom",
        "--dataset-path": str(folder / PROMPTS_NAME),
        "--custom-output-len": str(output_tokens),
        "--num-prompts": str(count),
        "--max-concurrency": str(concurrency),
        "--temperature": "0",
        "--result-dir": str(folder),
        "--result-filename": RESULT_NAME,
    }
    switches = ["--skip-chat-template", "--disable-shuffle", "--ignore-eos", "--disable-tqdm",
                "--save-result", "--save-detailed"]  # fmt: skip
    return ["bench", "serve", *(word for pair in pairs.items() for word in pair), *switches]


def parse_result(
    raw: Mapping[str, Any], *, command: Sequence[str], asked: int, version: str
) -> BenchResult:
    """The tool's JSON (``--save-detailed``) as a value. Raises EngineError naming a missing field.

    TPOT per request is recomputed by the tool's rule, (latency - TTFT) / (tokens - 1), because the
    file holds only its statistics.
    """
    try:
        good = [i for i, error in enumerate(raw["errors"]) if not error and raw["ttfts"][i] > 0]
        tokens, ttft, e2e = raw["output_lens"], raw["ttfts"], raw["latencies"]
        any_tpot = any(tokens[i] > 1 for i in good)
        return BenchResult(
            version=version,
            command=tuple(command),
            asked=asked,
            completed=raw["completed"],
            failed=raw["failed"],
            duration_s=raw["duration"],
            output_tokens=raw["total_output_tokens"],
            output_rate_tok_s=raw["output_throughput"] if good else None,
            median_ttft_s=raw["median_ttft_ms"] / 1e3 if good else None,
            median_tpot_s=raw["median_tpot_ms"] / 1e3 if any_tpot else None,
            ttft_s=tuple(ttft[i] for i in good),
            tpot_s=tuple((e2e[i] - ttft[i]) / (tokens[i] - 1) for i in good if tokens[i] > 1),
            e2e_s=tuple(e2e[i] for i in good),
            input_lens=tuple(raw["input_lens"]),
            output_lens=tuple(tokens),
            errors=tuple(error.strip()[-300:] for error in raw["errors"] if error),
        )
    except (KeyError, TypeError, IndexError) as error:
        raise EngineError(
            f"the result of vllm bench serve has no usable {error}: its format changed. "
            f"This reader knows vLLM 0.32; installed is {version}."
        ) from error


def _run(command: list[str], *, tokenizer: str, timeout_s: float) -> str:
    """Run to the end in a process group of its own; its output. Raises EngineError."""
    env = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "TOKENIZERS_PARALLELISM": "false"}
    for name in ("NO_PROXY", "no_proxy"):  # the tool would send our loopback through a proxy
        env[name] = ",".join(filter(None, (env.get(name), "127.0.0.1", "localhost")))
    if user_path(tokenizer).is_dir():
        env["HF_HUB_OFFLINE"] = "1"
    tool = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", env=env, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = tool.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        said = _end(tool)
        raise EngineError(
            f"vllm bench serve was not done within {timeout_s:g} s and was stopped.\n{_tail(said)}"
        ) from None
    except BaseException:
        _end(tool)
        raise
    if tool.returncode:
        raise EngineError(f"vllm bench serve ended with code {tool.returncode}:\n{_tail(said)}")
    return said


def _end(tool: subprocess.Popen[str]) -> str:
    """Kill the tool's process group, which it leads; what it had said so far."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(tool.pid, signal.SIGKILL)
    return tool.communicate()[0]


def _read(path: Path, *, said: str) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise EngineError(
            f"vllm bench serve left no readable result ({type(error).__name__}):\n{_tail(said)}"
        ) from error
    if not isinstance(raw, dict):
        raise EngineError(f"the result of vllm bench serve is a {type(raw).__name__}, not a table")
    return raw


def _tail(said: str) -> str:
    return said.strip()[-TAIL_CHARS:]


def per_run(results: Sequence[BenchResult]) -> dict[str, list[float | None]]:
    """The three numbers of a baseline as the tool reported them, one per run, in s and tok/s."""
    return {
        "TTFT": [result.median_ttft_s for result in results],
        "TPOT": [result.median_tpot_s for result in results],
        "throughput": [result.output_rate_tok_s for result in results],
    }
