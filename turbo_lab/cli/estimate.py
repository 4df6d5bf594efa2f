"""``turbo-lab estimate``: how much memory a model and its conversations take."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

EXAMPLES = """
Parameters, weights and KV cache of a model, and what a cache of a given size holds.

MODEL is a config.json, a folder that holds one, or a model of the catalogue.

Examples:

  turbo-lab estimate qwen3-8b

  turbo-lab estimate ./my-model --max-len 32768 --kv-cache-gib 20 --explain

  turbo-lab estimate gpt-oss-20b --max-len 131072 --kv-cache-gib 40 --tp 2 --kv-dtype fp8 --json

  turbo-lab estimate qwen3-8b --max-len 8192 --memory-gib 24

  turbo-lab estimate --list
"""


Model = Annotated[str | None, typer.Argument(help="config.json, folder or model id.")]
MaxLen = Annotated[int | None, typer.Option(help="Longest request in tokens.")]
KvGib = Annotated[float | None, typer.Option(help="GiB of KV cache on every rank.")]
MemoryGib = Annotated[
    float | None, typer.Option(help="GiB of one device; the cache is what remains (a band).")
]
Utilization = Annotated[float, typer.Option(help="Share of the device that is used.")]
Ranks = Annotated[int, typer.Option(help="Tensor-parallel ranks.")]
Stages = Annotated[int, typer.Option(help="Pipeline stages.")]
Compute = Annotated[str, typer.Option(help="What the engine computes in.")]
KvDtype = Annotated[str, typer.Option(help="Number format of the cache.")]
BlockSize = Annotated[int | None, typer.Option(help="Tokens per block.")]
Batched = Annotated[int, typer.Option(help="Most tokens of one step.")]
NumSpec = Annotated[int, typer.Option(help="Speculative tokens per step.")]
DraftLayers = Annotated[
    int | None, typer.Option(help="Attention layers of the draft in the pool (default: MTP's).")
]
LawVersion = Annotated[str, typer.Option(help="vLLM version whose meaning is used.")]
Platform = Annotated[str, typer.Option(help="gpu or cpu: block sizes differ.")]
Async = Annotated[bool, typer.Option(help="Two batches in flight (GPU servers from 0.26 on).")]
Prefix = Annotated[bool, typer.Option(help="States keep one more block.")]
Hybrid = Annotated[bool, typer.Option(help="Windows free what leaves them.")]
Explain = Annotated[bool, typer.Option("--explain", help="Say where each line is from.")]
List = Annotated[bool, typer.Option("--list", help="List the catalogue.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("estimate", help=EXAMPLES)(estimate)


def estimate(
    model: Model = None,
    max_len: MaxLen = None,
    kv_cache_gib: KvGib = None,
    memory_gib: MemoryGib = None,
    utilization: Utilization = 0.92,
    tp: Ranks = 1,
    pp: Stages = 1,
    dtype: Compute = "auto",
    kv_dtype: KvDtype = "auto",
    block_size: BlockSize = None,
    max_batched_tokens: Batched = 2048,
    num_spec: NumSpec = 0,
    draft_layers: DraftLayers = None,
    law: LawVersion = "latest",
    platform: Platform = "gpu",
    async_scheduling: Async = False,
    prefix_caching: Prefix = True,
    hybrid_manager: Hybrid = True,
    explain: Explain = False,
    list_models: List = False,
    as_json: AsJson = False,
) -> None:
    """Read a config and print the estimate."""
    from turbo_lab.core.errors import UsageError
    from turbo_lab.models.catalog import catalog_ids, find_model

    if list_models:
        typer.echo(json.dumps(catalog_ids()) if as_json else "\n".join(catalog_ids()))
        return
    if model is None:
        raise UsageError("MODEL is missing. Give a config.json, a folder or an id (see --list).")
    setup = _deployment(
        tensor_parallel=tp, pipeline_parallel=pp, dtype=dtype, kv_dtype=kv_dtype,
        block_tokens=block_size, max_batched_tokens=max_batched_tokens,
        speculative_tokens=num_spec, prediction_layers=draft_layers, platform=platform,
        async_scheduling=async_scheduling, prefix_caching=prefix_caching,
        hybrid_manager=hybrid_manager,
    )  # fmt: skip
    _check(max_len=max_len, kv_cache_gib=kv_cache_gib, memory_gib=memory_gib)
    spec = find_model(model)
    rows = _rows(spec, setup, law=law, kv_cache_gib=kv_cache_gib, max_len=max_len)
    rows += _budget_rows(spec, setup, memory_gib, utilization, law)
    notes = _notes(spec, setup, law)
    if as_json:
        typer.echo(json.dumps(_as_json(spec, rows, notes), indent=1, ensure_ascii=False))
        return
    _print_table(spec, rows, notes, explain=explain)


def _deployment(**settings: Any) -> Any:
    from turbo_lab.estimate.deployment import Deployment

    return Deployment(**settings)


def _check(*, max_len: int | None, kv_cache_gib: float | None, memory_gib: float | None) -> None:
    from turbo_lab.core.errors import UsageError

    for option, gib in (("--kv-cache-gib", kv_cache_gib), ("--memory-gib", memory_gib)):
        if gib is not None and not 0 < gib < float("inf"):
            raise UsageError(f"{option} is {gib}; allowed: a finite number above 0.")
    if kv_cache_gib is not None and max_len is None:
        raise UsageError(
            "--kv-cache-gib needs --max-len: what fits depends on the longest request."
        )


def _rows(spec: Any, setup: Any, **options: Any) -> list[Any]:
    from turbo_lab.estimate.report import estimate_lines

    return estimate_lines(spec, deployment=setup, **options)


def _budget_rows(
    spec: Any, setup: Any, memory_gib: float | None, utilization: float, law: str
) -> list[Any]:
    if memory_gib is None:
        return []
    from turbo_lab.core.errors import UsageError
    from turbo_lab.core.units import GiB
    from turbo_lab.estimate.budget import memory_budget
    from turbo_lab.estimate.law import LATEST
    from turbo_lab.estimate.report import Line
    from turbo_lab.models.weights import weight_bytes

    weights = weight_bytes(
        spec, tensor_parallel=setup.tensor_parallel, pipeline_parallel=setup.pipeline_parallel,
        dtype=setup.dtype,
    )  # fmt: skip
    if weights is None:
        raise UsageError(
            f"--memory-gib needs the size of the weights, and the format {spec.quantization!r} has "
            "no rule here. Give --kv-cache-gib instead."
        )
    budget = memory_budget(
        total_bytes=int(memory_gib * GiB),
        weights_bytes=weights.per_rank,
        utilization=utilization,
        law_version=LATEST if law == "latest" else law,
    )
    low, high = budget.kv_bytes
    why = f"device * {utilization:g} - weights - activation, non-torch, graphs: {budget.source}"
    return [
        Line("kv_cache_bytes_low", low, "B", why),
        Line("kv_cache_bytes_high", high, "B", why),
    ]


def _notes(spec: Any, setup: Any, law: str) -> list[str]:
    """Assumptions that change a number, one sentence each."""
    from turbo_lab.estimate.law import law_for
    from turbo_lab.estimate.pages import prediction_layers

    notes = []
    if setup.speculative_tokens and setup.prediction_layers is None and prediction_layers(spec):
        notes.append(
            f"{prediction_layers(spec)} MTP layer(s) share the pool; without MTP: --draft-layers 0."
        )
    if spec.dtype_assumed:
        notes.append("config.json names no dtype: bf16 is assumed.")
    windowed = any(layer.window_tokens for layer in spec.attention_layers)
    if windowed and law_for(law).counts_batches and not setup.async_scheduling:
        notes.append(
            "One batch is in flight. GPU servers of this version keep two by default: "
            "add --async-scheduling."
        )
    if any(layer.indexer for layer in spec.attention_layers) and setup.kv_dtype.startswith("fp8"):
        notes.append("On Hopper, sparse MLA stores fp8 as fp8_ds_mla (656 B per token and layer).")
    return notes


def _as_json(spec: Any, rows: list[Any], notes: list[str]) -> dict[str, Any]:
    from collections import Counter

    return {
        "model": spec.name,
        "model_type": spec.model_type,
        "layers": dict(Counter(spec.attention_kinds)),
        **{row.name: row.value for row in rows},
        "dtype": spec.dtype,
        "dtype_assumed": spec.dtype_assumed,
        "quantization": spec.quantization,
        "notes": notes,
        "explain": {row.name: row.why for row in rows},
    }


def _text(row: Any) -> str:
    from turbo_lab.core.units import GiB, format_bytes

    if row.value is None:
        return "unknown"
    if isinstance(row.value, bool):
        return "yes" if row.value else "no"
    if row.unit == "B":
        pretty = format_bytes(row.value) if abs(row.value) < GiB else f"{row.value / GiB:.3f} GiB"
        return f"{row.value:,} B  ({pretty})"
    if isinstance(row.value, float):
        return f"{row.value:.4f} {row.unit}".strip()
    return f"{row.value:,}" if isinstance(row.value, int) else str(row.value)


def _print_table(spec: Any, rows: list[Any], notes: list[str], *, explain: bool) -> None:
    from collections import Counter

    kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(spec.attention_kinds).items())
    typer.echo(f"{spec.name}  ({spec.architecture}; layers: {kinds})")
    width = max(len(row.name) for row in rows) + 2
    for row in rows:
        typer.echo(f"  {row.name.replace('_', ' '):<{width}}{_text(row)}")
        if explain:
            typer.echo(f"  {'':<{width}}  {row.why}")
    for note in notes:
        typer.echo(f"note: {note}")
