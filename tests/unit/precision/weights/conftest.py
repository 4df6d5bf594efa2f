"""A small Llama with random weights, and inputs as uneven as real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def tiny() -> Iterator[Any]:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    transformers = pytest.importorskip("transformers", reason="needs the cpu environment")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=128, tie_word_embeddings=True, head_dim=16,
        max_position_embeddings=128,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():  # a few loud channels, as real models have
        for name, parameter in model.named_parameters():
            if name.endswith("layernorm.weight"):
                parameter[::16] = 20.0
            else:
                parameter.mul_(4)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a model only waits for a second thread
    yield model
    torch.set_num_threads(threads)


@pytest.fixture
def windows() -> list[Any]:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, 128, (64,), generator=generator) for _ in range(4)]


@pytest.fixture(scope="session")
def correlated() -> tuple[np.ndarray, np.ndarray]:
    """A weight [48, 96] and the Hessian of inputs with eight loud, correlated directions."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((600, 8)) @ rng.standard_normal((8, 96)) * 3
    inputs += rng.standard_normal(inputs.shape)
    weight = rng.standard_normal((48, 96)).astype(np.float32) * 0.05
    return weight, (inputs.T @ inputs / len(inputs)).astype(np.float32)
