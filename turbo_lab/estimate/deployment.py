"""How a model is served, as far as the size of its cache depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turbo_lab.core.errors import UsageError
from turbo_lab.models.spec import ModelSpec


@dataclass(frozen=True)
class Deployment:
    """The engine's settings. Defaults are those of a GPU server; one batch is in flight.

    ``dtype``: what the engine computes in (``auto``: the checkpoint's own), which an ``auto``
    ``kv_dtype`` (unless the checkpoint declares one for its cache) and the states follow.
    ``block_tokens`` None: the platform's default. ``prediction_layers``: extra attention layers of
    the draft that shares the pool; None takes the checkpoint's own (MTP) when
    ``speculative_tokens`` is above 0. ``async_scheduling``: two batches are in flight (the default
    of GPU servers from 0.26 on; off on the CPU).
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    dtype: str = "auto"
    kv_dtype: str = "auto"
    block_tokens: int | None = None
    max_batched_tokens: int = 2048
    speculative_tokens: int = 0
    prediction_layers: int | None = None
    prefix_caching: bool = True
    async_scheduling: bool = False
    hybrid_manager: bool = True
    platform: Literal["gpu", "cpu"] = "gpu"
    state_dtype: Literal["bf16", "fp16", "fp32"] | None = None

    def __post_init__(self) -> None:
        """Check ranges; raises UsageError naming the field."""
        for name in ("tensor_parallel", "pipeline_parallel", "max_batched_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: whole numbers from 1.")
        if self.speculative_tokens < 0:
            raise UsageError("speculative_tokens is negative; allowed: whole numbers from 0.")
        if self.block_tokens is not None and self.block_tokens < 1:
            raise UsageError(f"block_tokens is {self.block_tokens}; allowed: from 1.")
        if self.platform not in ("gpu", "cpu"):
            raise UsageError(f"platform is {self.platform!r}; allowed: gpu, cpu.")

    @property
    def kernel_tokens(self) -> int:
        """Smallest block that the platform's attention kernels work on."""
        return 32 if self.platform == "cpu" else 16

    def concurrent_batches(self, *, counted: bool) -> int:
        """Batches whose tokens may be unsettled at once; 1 under laws that do not count them."""
        if not counted:
            return 1
        if self.async_scheduling and self.pipeline_parallel == 1:
            return 2
        return self.pipeline_parallel

    def plain_block_tokens(self, spec: ModelSpec) -> int:
        """Tokens per block before any alignment with state pages.

        GPU 16 (64 where an indexer's kernels demand it), CPU 128; the CPU's MLA kernel only
        knows 16 and overrides what was asked for.
        """
        kinds = {layer.kind for layer in spec.attention_layers}
        if self.platform == "cpu" and "mla" in kinds:
            return 16
        if self.block_tokens is not None:
            return self.block_tokens
        if any(layer.indexer for layer in spec.attention_layers):
            return 64
        return 128 if self.platform == "cpu" else 16
