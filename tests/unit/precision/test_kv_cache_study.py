"""The table on a tiny model: the off-control shows nothing, bytes are those of the formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the cpu environment")
import torch

from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.quality_subject import Subject
from turbo_lab.models.memory import kv_cache_bytes
from turbo_lab.models.spec import from_hf_config
from turbo_lab.precision.kv_cache_kinds import cache_kinds
from turbo_lab.precision.kv_cache_study import (
    ASKED_AT_QUICK,
    measure_caches,
    prepare,
    study_prompts,
)


class Words:
    """A tokenizer of one token per word (Chinese: per eight characters)."""

    eos_token_id = 95

    def __call__(self, text: str, **options: Any) -> dict[str, Any]:
        parts = [w[i : i + 8] for w in text.split() for i in range(0, len(w), 8)]
        return {"input_ids": torch.tensor([[sum(map(ord, p)) % 95 for p in parts]])}

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        return messages[0]["content"][:200]

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


def test_rows_of_the_table(llama):
    short = [replace(p, max_tokens=3) for p in study_prompts("quick") if p.kind == "needle"]
    work = prepare(Subject("tiny", llama, Words()), effort="smoke", prompts=short)
    wanted = ("fp32, our cache", "int8, K per token", "int4, K per token", "window of 256")
    kinds = {name: kind for name, kind in cache_kinds().items() if name in wanted}
    plain, eight, four, window = measure_caches(work, kinds, ask=wanted[:3])
    assert plain.text.kl.candidate == 0.0 and plain.replies.equal_share == 1.0
    assert plain.smaller == 1.0 and plain.needle.units == 5
    assert work.reference_bytes == sum(
        kv_cache_bytes(from_hf_config(llama.config.to_dict(), name="tiny"), batch=1,
                       context_tokens=len(ids), dtype="fp32")
        for ids in work.text.ids
    )  # fmt: skip
    assert 0 < eight.text.kl.candidate < four.text.kl.candidate
    assert eight.smaller < four.smaller and window.replies is None
    assert [row.cells()["cache"] for row in (plain, eight, four)] == list(wanted[:3])


def test_the_names_and_the_efforts():
    assert set(ASKED_AT_QUICK) <= set(cache_kinds())
    assert len(study_prompts("full")) >= 120
    assert sorted({p.depth for p in study_prompts("quick") if p.kind == "needle"}) == [
        0.0, 0.25, 0.5, 0.75, 1.0,
    ]  # fmt: skip
    with pytest.raises(UsageError, match="quick"):
        study_prompts("fast")
