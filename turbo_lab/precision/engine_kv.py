"""vLLM's own quantised KV cache: ask the engine, and keep its answer, a refusal included.

Which formats run depends on the processor or card and on the release, so nothing here is a table of
what should work: the engine is started with the format and tells its pool, or says why not. A start
proves little: vLLM 0.32 on CPU starts with ``int4_per_token_head``, lays out one byte per value and
answers nonsense. So the pool is held against the prediction, and the replies against the reference.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.core.errors import EngineError, UnmeasuredError
from turbo_lab.core.units import GiB
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate.capacity import capacity
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.experiment.quality_prompts import QualityPrompt
from turbo_lab.experiment.quality_served import served_replies
from turbo_lab.experiment.quality_subject import Reply
from turbo_lab.metrics.summary import summarize
from turbo_lab.models.spec import from_hf_config

FP8_KINDS = ("fp8", "fp8_e4m3", "fp8_e5m2")
_ERROR = re.compile(r"\b([A-Z]\w*(?:Error|Exception): [^\n]{3,300})")
_GENERAL = ("RuntimeError: Engine core init", "EngineError", "Exception: WorkerProc")


@dataclass(frozen=True)
class ServedCache:
    """What one start with one cache format told.

    Attributes:
        dtype, kv_dtype: of the model and of its cache, as asked.
        predicted_tokens: pool that the capacity law expects for these arguments; None on a GPU
            whose pool size is the engine's own choice.
        pool_tokens: the engine's own line.
        replies: greedy replies to the prompts.
        tpot_s: median over requests of the time per output token; None where no reply had two.
        reason: why there is nothing, in the engine's own words; None where it ran.
    """

    dtype: str
    kv_dtype: str
    predicted_tokens: int | None
    pool_tokens: int | None = None
    replies: tuple[Reply, ...] = ()
    tpot_s: float | None = None
    reason: str | None = None

    @property
    def unmeasured(self) -> str | None:
        """``unmeasured: reason`` where the engine did not run, else None."""
        return f"unmeasured: {self.reason}" if self.reason else None

    @property
    def as_predicted(self) -> bool | None:
        """The pool is the predicted one, to the token: the format is really laid out. Else False.

        None where either number is unknown.
        """
        if self.pool_tokens is None or self.predicted_tokens is None:
            return None
        return self.pool_tokens == self.predicted_tokens

    def pool(self) -> int:
        """The pool in tokens. Raises UnmeasuredError with the engine's words."""
        if self.pool_tokens is None:
            raise UnmeasuredError(self.reason or "the engine did not tell its pool")
        return self.pool_tokens


def predicted_pool_tokens(args: VllmArgs) -> int | None:
    """Pool tokens for these arguments by the capacity law; None without a fixed pool size."""
    config = Path(args.model).expanduser() / "config.json"
    if not config.is_file() or (args.device == "gpu" and args.kv_cache_gib is None):
        return None
    found = capacity(
        from_hf_config(json.loads(config.read_text())),
        kv_cache_bytes=int((args.kv_cache_gib or 1) * GiB),
        max_len=args.max_model_len,
        deployment=Deployment(platform=args.device, dtype=args.dtype, kv_dtype=args.kv_cache_dtype),
    )
    return found.tokens


def serve_with(args: VllmArgs, kv_dtype: str, *, prompts: Sequence[QualityPrompt]) -> ServedCache:
    """Start ``vllm serve --kv-cache-dtype KV_DTYPE``, ask the prompts one by one, stop it.

    About half a minute on CPU and the time of the replies. A refusal is a result, not an error.

    Args:
        args: the server; its ``kv_cache_dtype`` is replaced.
        kv_dtype: ``auto``, ``fp8``, ``fp8_e4m3``, ``fp8_e5m2`` or whatever the release knows.
        prompts: asked in this order; the first is asked once before, as a warm-up.
    """
    asked = args.replace(kv_cache_dtype=kv_dtype)
    facts = {"dtype": args.dtype, "kv_dtype": kv_dtype}
    predicted = predicted_pool_tokens(asked)
    server = VllmServer(asked)
    name = server.model_name
    try:
        with server:
            served_replies(server.base_url, prompts[:1], model=name)
            replies, runs = served_replies(server.base_url, prompts, model=name)
            pool = server.kv_cache_tokens()
    except (EngineError, UnmeasuredError) as error:
        text = server.log.read_text(errors="replace") if server.log.exists() else ""
        reason = own_words(f"{text}\n{error}")
        return ServedCache(**facts, predicted_tokens=predicted, reason=reason)
    pace = summarize(runs)["tpot_s"].values
    return ServedCache(
        **facts, predicted_tokens=predicted, pool_tokens=pool, replies=replies,
        tpot_s=statistics.median(pace) if pace else None,
    )  # fmt: skip


def own_words(text: str) -> str:
    """The engine's first specific error line in a log or message, else its last line."""
    found = [e for e in _ERROR.findall(text) if not e.startswith(_GENERAL)]
    if found:
        return found[0].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "the engine ended without a word"
