"""What a lesson knows of its server: read live, the same in replay, a reason without."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from turbo_lab.core.errors import EngineError, UnmeasuredError
from turbo_lab.course import start_lesson
from turbo_lab.course.lesson import Lesson
from turbo_lab.course.served import served
from turbo_lab.engines.args import VllmArgs
from turbo_lab.records import store

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 2048,
    "tie_word_embeddings": True, "dtype": "bfloat16",
}  # fmt: skip


def server(folder: Path, *, dtype: str, block: str | None = "128") -> SimpleNamespace:
    (folder / "config.json").write_text(json.dumps(CONFIG))

    def cache_config() -> dict[str, str]:
        if block is None:
            raise EngineError("/metrics has no vllm:cache_config_info")
        return {"block_size": block}

    args = VllmArgs.make(model=str(folder), dtype=dtype, max_num_seqs=8)
    return SimpleNamespace(args=args, cache_config=cache_config)


@pytest.mark.parametrize(("asked", "dtype", "size"), [("float32", "fp32", 4), ("auto", "bf16", 2)])
def test_facts_live_and_replayed(
    lesson: Lesson, tmp_path: Path, asked: str, dtype: str, size: int
) -> None:
    found = served(lesson, server(tmp_path, dtype=asked))
    assert (found.dtype, found.seats, found.block_tokens, found.longest_tokens) == (
        dtype, 8, 128, 2048,
    )  # fmt: skip
    assert found.spec.vocab == 512 and found.formats["weight_bytes"] == size
    lesson.compare()
    store.promote(lesson.path, study=lesson.study, folder=tmp_path / "records")
    again = start_lesson(lesson.notebook, mode="replay", records=tmp_path / "records")
    assert served(again, None) == found


def test_a_silent_server_is_told(lesson: Lesson, tmp_path: Path) -> None:
    with pytest.raises(UnmeasuredError, match="nothing is known"):
        served(lesson, server(tmp_path, dtype="float32", block=None))
