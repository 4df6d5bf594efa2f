"""Our bytes of weights on the fullest rank against the parameters of vLLM's own classes.

The classes are built on the meta device for one rank of each stage, without weight quantisation
(see ``meta_models``): what is copied to every rank is then vLLM's own decision.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turbo_lab.models.catalog import load_model
from turbo_lab.models.spec import from_hf_config
from turbo_lab.models.weights import weight_bytes

from .meta_models import engine_config, prepared_engine, stage_models  # noqa: F401

pytestmark = [pytest.mark.engine, pytest.mark.slow]

# (model, tensor-parallel ranks, pipeline stages): copied KV heads, latents and routers on every
# rank, uneven stages, and tied embeddings at both ends. (vLLM's Qwen3 MoE builds the embedding and
# the head on every stage, whichever it needs: no stages for it here.)
CASES = (
    ("llama-3.1-8b", 2, 1),
    ("llama-3.1-8b", 16, 1),
    ("llama-3.1-8b", 1, 3),
    ("qwen3-0.6b", 1, 2),
    ("qwen2.5-1.5b", 4, 1),
    ("deepseek-v2-lite", 8, 1),
    ("deepseek-v3", 16, 1),
    ("qwen3-30b-a3b", 4, 1),
    ("mixtral-8x7b", 8, 1),
    ("gemma-3-27b-text", 4, 2),
)


def parameter_bytes(config: Any, *, tp: int, pp: int) -> int:
    """Bytes of the parameters on a rank of the fullest stage; shared ones count once."""
    return max(
        sum(p.numel() * p.element_size() for p in model.parameters())
        for model in stage_models(config, tp=tp, pp=pp)
    )


@pytest.mark.parametrize(("name", "tp", "pp"), CASES, ids=lambda value: str(value))
def test_a_rank_holds_what_vllm_gives_it(
    engine: None,
    tmp_path: Path,
    name: str,
    tp: int,
    pp: int,
) -> None:
    config = dict(load_model(name).config)
    config.pop("quantization_config", None)
    theirs = parameter_bytes(
        engine_config(config, tmp_path / "model", max_len=512, block=None, kv_dtype="auto"),
        tp=tp,
        pp=pp,
    )
    found = weight_bytes(from_hf_config(config), tensor_parallel=tp, pipeline_parallel=pp)
    assert found is not None
    # vLLM pads the vocabulary to a multiple of 64; routing biases are fp32.
    assert found.per_rank - found.rotary == pytest.approx(theirs, rel=1e-3)
