"""The source's offline script, ``LLM(..., kv_cache_dtype="fp8_e5m2")``, run on this machine.

The source names Qwen2.5-7B and a GPU; here the model and the lengths are arguments, the call is the
same. ``run_script`` starts it as a child process (``python -m turbo_lab.precision.engine_kv_script
JSON``), because vLLM takes over the process it runs in.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.engines import vllm_cli
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.vllm_server import KV_TOKENS_LINE
from turbo_lab.precision.engine_kv import own_words

SOURCE_PROMPT = "解释一下什么是 KV Cache 量化。"
TIMEOUT_S = 300.0
_MARK = "turbo-lab-script: "


@dataclass(frozen=True)
class ScriptRun:
    """How far the script came: the texts and the pool where it ran, else the reason."""

    kv_dtype: str
    seconds: float
    pool_tokens: int | None = None
    texts: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def unmeasured(self) -> str | None:
        """``unmeasured: reason`` where it did not run, else None."""
        return f"unmeasured: {self.reason}" if self.reason else None


def run_script(
    args: VllmArgs,
    *,
    kv_dtype: str = "fp8_e5m2",
    prompts: tuple[str, ...] = (SOURCE_PROMPT,),
    max_tokens: int = 64,
    timeout_s: float = TIMEOUT_S,
) -> ScriptRun:
    """Run the script with this model, device and dtype; a refusal is a result, not an error.

    Args:
        args: model, device, dtype, cores, longest length and pool size are taken from it.
        kv_dtype: of the cache, as the source has it.
        prompts: the source's question by default.
        max_tokens: of each reply (the source has 512).
        timeout_s: then the process group is ended.
    """
    job = {"llm": _llm_arguments(args, kv_dtype), "prompts": prompts, "max_tokens": max_tokens}
    command = [sys.executable, "-m", __name__, json.dumps(job)]
    begun = time.monotonic()
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **_environment(args)}, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        output = f"TimeoutError: no answer within {timeout_s:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return _outcome(output, kv_dtype, time.monotonic() - begun)


def _outcome(output: str, kv_dtype: str, seconds: float) -> ScriptRun:
    told = [line for line in output.splitlines() if line.startswith(_MARK)]
    if not told:
        return ScriptRun(kv_dtype, seconds, reason=own_words(output))
    pool = KV_TOKENS_LINE.search(output)
    tokens = int(pool.group(1).replace(",", "")) if pool else None
    return ScriptRun(kv_dtype, seconds, tokens, tuple(json.loads(told[-1][len(_MARK) :])))


def _llm_arguments(args: VllmArgs, kv_dtype: str) -> dict[str, object]:
    found: dict[str, object] = {
        "model": args.model, "dtype": args.dtype, "kv_cache_dtype": kv_dtype,
        "max_model_len": args.max_model_len, "enforce_eager": args.enforce_eager,
    }  # fmt: skip
    if args.gpu_memory_utilization is not None:
        found["gpu_memory_utilization"] = args.gpu_memory_utilization
    return found


def _environment(args: VllmArgs) -> dict[str, str]:
    env = args.environment()
    if Path(args.model).expanduser().is_dir():
        env.setdefault("HF_HUB_OFFLINE", "1")
    library = vllm_cli.openmp_preload() if args.device == "cpu" else None
    return {**env, "LD_PRELOAD": library} if library else env


def main() -> None:
    """The script itself; its last line is marked, all others are vLLM's log."""
    job = json.loads(sys.argv[1])
    from vllm import LLM, SamplingParams

    llm = LLM(**job["llm"])
    sampling = SamplingParams(temperature=0.0, max_tokens=job["max_tokens"])
    outputs = llm.generate(list(job["prompts"]), sampling)
    print(_MARK + json.dumps([output.outputs[0].text for output in outputs]), flush=True)


if __name__ in ("__main__", "__mp_main__"):
    vllm_cli.answer_for_vllm()  # child processes that vLLM spawns come through here too
if __name__ == "__main__":
    main()
