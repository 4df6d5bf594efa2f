"""A tiny random teacher on disk, and a tokenizer of letters, for the parts that make a draft."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LAYERS, VOCABULARY, END = 4, 96, 2


class Letters:
    """Each printable character is a token; 2 ends a turn."""

    eos_token_id = END

    def apply_chat_template(self, messages: Any, **_: Any) -> str:
        return f"user:{messages[0]['content']}\x02me:"

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [END if c == "\x02" else 3 + ord(c) % 93 for c in text]}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(chr(32 + i) for i in ids if i != END)


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of four layers with random weights, saved as the bundled model is."""
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    transformers = pytest.importorskip("transformers", reason="needs the cpu environment")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=VOCABULARY, tie_word_embeddings=True, head_dim=8,
        max_position_embeddings=512, initializer_range=0.3, eos_token_id=END,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("models") / "tiny"
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps({"letters": VOCABULARY}))
    return folder


@pytest.fixture(scope="module")
def load(teacher_folder: Path) -> Iterator[Callable[[], Any]]:
    """Load the tiny model as the build does. One thread: so small a model waits for a second."""
    import torch
    from transformers import LlamaForCausalLM

    from turbo_lab.speculative.draft_build import Teacher
    from turbo_lab.speculative.draft_pack import embeddings_sha256

    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def loaded() -> Teacher:
        model = LlamaForCausalLM.from_pretrained(teacher_folder, dtype=torch.bfloat16).eval()
        digest = embeddings_sha256(teacher_folder)
        return Teacher(teacher_folder, "tiny", model, Letters(), digest)

    yield loaded
    torch.set_num_threads(threads)


@pytest.fixture
def teacher(load: Callable[[], Any]) -> Any:
    """The tiny model, new for each test."""
    return load()


@pytest.fixture(scope="module")
def recipe() -> Any:
    """Two rounds of six short conversations, a dozen small steps."""
    from turbo_lab.speculative.draft import DraftRecipe

    return DraftRecipe.make(
        rounds=2, rows=6, reply_tokens=5, turn_tokens=4, held_out=2, layers=(0, 3), epochs=2,
        batch_tokens=256, frequent=40, random=8, warmup_steps=2, check_steps=3,
    )  # fmt: skip
