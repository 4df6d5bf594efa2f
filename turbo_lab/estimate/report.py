"""All numbers of one estimate as plain data, each with the formula it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turbo_lab.core.units import GiB
from turbo_lab.estimate.capacity import Capacity, capacity, pool_layout
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.estimate.law import Law, law_for
from turbo_lab.models import memory
from turbo_lab.models.parameters import count_parameters
from turbo_lab.models.quantization import declared_kv_dtype
from turbo_lab.models.spec import ModelSpec
from turbo_lab.models.stages import pipeline_stages
from turbo_lab.models.weights import weight_bytes


@dataclass(frozen=True)
class Line:
    """One number: its JSON name, value, unit and the sentence that explains it."""

    name: str
    value: Any
    unit: str
    why: str


def estimate_lines(
    spec: ModelSpec,
    *,
    deployment: Deployment | None = None,
    law: Law | str | None = None,
    kv_cache_gib: float | None = None,
    max_len: int | None = None,
) -> list[Line]:
    """The lines of ``turbo-lab estimate``, in order.

    Capacity lines need ``max_len``; blocks, tokens and concurrency also ``kv_cache_gib`` (GiB of
    cache on every rank). Raises UsageError for an impossible deployment.
    """
    setup = deployment or Deployment()
    chosen = law if isinstance(law, Law) else law_for(law)
    lines = [*_model_lines(spec, setup), *_memory_lines(spec, setup)]
    if max_len is None:
        return lines
    if kv_cache_gib is None:
        pool = pool_layout(spec, max_len=max_len, deployment=setup, law=chosen)
        return [*lines, _required(pool.required_bytes, max_len, chosen), _law_line(chosen)]
    found = capacity(
        spec,
        kv_cache_bytes=int(kv_cache_gib * GiB),
        max_len=max_len,
        deployment=setup,
        law=chosen,
    )
    return [*lines, *_capacity_lines(found, kv_cache_gib), _law_line(chosen)]


def _model_lines(spec: ModelSpec, setup: Deployment) -> list[Line]:
    count = count_parameters(spec)
    weights = weight_bytes(
        spec, tensor_parallel=setup.tensor_parallel, pipeline_parallel=setup.pipeline_parallel,
        dtype=setup.dtype,
    )  # fmt: skip
    vision = "" if count.vision else " (no vision tower)"
    if count.vision is None:
        vision = " (a vision tower is there but cannot be counted here)"
    unknown = f"the weight format {spec.quantization!r} has no rule here"
    return [
        Line("parameters", count.total, "", f"language and vision weights{vision}"),
        Line("parameters_text", count.text, "", "language part alone"),
        Line("parameters_active", count.active, "", "language weights that one token uses"),
        Line(
            "weights_bytes",
            weights.total if weights else None,
            "B",
            f"{weights.format} weights, scales and the rotary table ({weights.rotary:,} B)"
            if weights
            else unknown,
        ),
        Line(
            "weights_bytes_per_rank",
            weights.per_rank if weights else None,
            "B",
            "on the fullest rank: routers, norms, MLA's way down and the rotary table are whole"
            if weights
            else unknown,
        ),
    ]


def _memory_lines(spec: ModelSpec, setup: Deployment) -> list[Line]:
    dtype = memory.resolve_kv_dtype(spec, dtype=setup.kv_dtype, computed=setup.dtype)
    tp = setup.tensor_parallel
    told = declared_kv_dtype(spec)
    assumed = ", dtype assumed" if spec.dtype_assumed and setup.kv_dtype == "auto" else ""
    if told and setup.kv_dtype == "auto":
        assumed = ", as the checkpoint asks"
    return [
        Line(
            "kv_bytes_per_token",
            memory.kv_bytes_per_token(spec, dtype=dtype),
            "B",
            f"K and V of one token over all layers that store them ({dtype}{assumed})",
        ),
        Line(
            "kv_bytes_per_token_growing",
            memory.kv_bytes_per_token_growing(spec, dtype=dtype),
            "B",
            "the same, only layers that keep growing (no windows, no chunks)",
        ),
        Line(
            "kv_bytes_per_token_per_rank",
            per_rank_bytes(spec, setup, dtype=dtype),
            "B",
            f"on one of TP {tp} x PP {setup.pipeline_parallel} ranks; KV heads divide by TP, "
            "never below one; MLA latents do not divide",
        ),
        Line(
            "indexer_bytes_per_token",
            memory.indexer_bytes_per_token(spec),
            "B",
            "fp8 keys and scales of sparse attention's indexer, on every rank",
        ),
        Line(
            "state_bytes_per_request",
            memory.state_bytes_per_request(spec),
            "B",
            "fixed states (Mamba, linear attention, convolution), whatever the length",
        ),
    ]


def per_rank_bytes(spec: ModelSpec, setup: Deployment, *, dtype: memory.Dtype) -> int:
    """K and V bytes of one token on the rank of the fullest pipeline stage."""
    stages = pipeline_stages(len(spec.layers), stages=setup.pipeline_parallel)
    sums = [0] * setup.pipeline_parallel
    for stage, layer in zip(stages, spec.layers, strict=True):
        if layer.attention is not None:
            sums[stage] += memory.layer_bytes_per_token(
                layer.attention, dtype=dtype, tensor_parallel=setup.tensor_parallel
            )
    return max(sums)


def _capacity_lines(found: Capacity, kv_cache_gib: float) -> list[Line]:
    pool, length = found.pool, found.pool.max_len
    groups = ", ".join(
        f"{'+'.join(g.kinds)} {len(g.layers)}x{g.block_tokens}: {n}"
        for g, n in zip(pool.groups, pool.blocks_per_request, strict=True)
    )
    block = max(pool.bytes_per_block, default=0)
    token_rule = {
        "blocks": "blocks * block size",
        "per_group": "blocks // groups * smallest block size",
        "requests": "int(max concurrency * longest length)",
    }[pool.law.token_line]
    return [
        Line(
            "kv_cache_blocks",
            found.blocks,
            "",
            f"{kv_cache_gib:g} GiB // {block:,} B per block, smallest over the ranks",
        ),
        Line("kv_cache_tokens", found.tokens, "", token_rule),
        Line(
            "max_concurrency",
            found.max_concurrency,
            "x",
            f"blocks / blocks of one {length:,}-token request (layers x block size: {groups})",
        ),
        _required(pool.required_bytes, length, pool.law),
        Line("fits", found.fits, "", f"one request of {length:,} tokens can be served"),
        Line("longest_len", found.longest_len, "", f"longest request up to {length:,} that fits"),
        Line(
            "block_tokens",
            pool.groups[0].block_tokens if pool.groups else 0,
            "",
            _blocks_why(pool.groups),
        ),
    ]


def _blocks_why(groups: tuple[Any, ...]) -> str:
    if len({g.block_tokens for g in groups}) > 1:
        sizes = sorted({g.block_tokens for g in groups})
        return f"tokens per block; the groups have {sizes}"
    return "tokens per block (raised where a state must fit a page)"


def _required(required_bytes: int, length: int, law: Law) -> Line:
    why = f"blocks of one {length:,}-token request on the fullest rank"
    return Line("required_gib", required_bytes / GiB, "GiB", why)


def _law_line(law: Law) -> Line:
    return Line("law", law.label, "", law.source)
