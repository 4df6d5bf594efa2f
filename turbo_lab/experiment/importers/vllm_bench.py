"""``vllm bench serve --save-result`` (JSON; ``--save-detailed`` adds the single requests).

Read in vLLM 0.32 (vllm/benchmarks/serve.py). A failed request keeps its place with an empty reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from turbo_lab.core.errors import RecordError
from turbo_lab.experiment.importers.foreign import Foreign, filled, number

METRICS = {"ttft_s": "ttft", "tpot_s": "tpot", "itl_s": "itl", "e2e_s": "e2el"}
SETTINGS = (
    "backend", "request_rate", "burstiness", "max_concurrency", "num_prompts", "tokenizer_id",
)  # fmt: skip


def read(raw: Any) -> Foreign:
    """One result file. Raises RecordError when it is of another kind."""
    if not isinstance(raw, Mapping) or "request_throughput" not in raw or "completed" not in raw:
        raise RecordError("no request_throughput and completed: not a `vllm bench serve` result")
    completed, failed = number(raw["completed"]), number(raw.get("failed"))
    errors = [e for e in raw.get("errors") or [] if e]
    return Foreign(
        convention="vllm-0.32",
        version=None,
        model=raw.get("model_id"),
        succeeded=None if completed is None else int(completed),
        failed=len(errors) if failed is None else int(failed),
        settings={name: raw.get(name) for name in SETTINGS},
        samples=_samples(raw) if raw.get("ttfts") else {},
        summary=_summary(raw),
        failures=dict(Counter(str(e).strip().splitlines()[-1][:160] for e in errors)),
    )


def _samples(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Per-request values, by the tool's own rules, of the requests without an error."""
    count = len(raw["ttfts"])
    errors = raw.get("errors") or [""] * count
    good = [i for i in range(count) if not errors[i]]
    ttfts, itls = raw["ttfts"], raw.get("itls") or [[]] * count
    tokens = raw.get("output_lens") or [0] * count
    latencies = raw.get("latencies") or [ttfts[i] + sum(itls[i]) for i in range(count)]
    tpot = [(latencies[i] - ttfts[i]) / (tokens[i] - 1) for i in good if tokens[i] > 1]
    return filled(
        (
            ("ttft_s", [ttfts[i] for i in good]),
            ("tpot_s", tpot),
            ("itl_s", [gap for i in good for gap in itls[i]]),
            ("e2e_s", [latencies[i] for i in good]),
        )
    )


def _summary(raw: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Its statistics in seconds; rates as ``value``."""
    out: dict[str, dict[str, float]] = {}
    for ours, theirs in METRICS.items():
        ending = f"_{theirs}_ms"
        found = {
            key.removesuffix(ending): value / 1e3
            for key, v in raw.items()
            if key.endswith(ending) and (value := number(v)) is not None
        }
        if found:
            out[ours] = found
    for ours, theirs in (
        ("output_rate_tok_s", "output_throughput"),
        ("request_rate_req_s", "request_throughput"),
        ("goodput_req_s", "request_goodput"),
    ):
        if (value := number(raw.get(theirs))) is not None:
            out[ours] = {"value": value}
    return out
