"""Our quantised weights in real vLLM: it loads them, runs its integer kernels, says the same."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.export import export_checkpoint
from turbo_lab.precision.weights.recipe import QuantizedModel, Recipe, quantized_copy

pytestmark = [pytest.mark.engine, pytest.mark.slow]
PROMPT = "The capital of France is"
TOKENS = 16
KERNELS = {"int8": "CPUInt8ScaledMMLinearKernel", "int4": "CPUWNA16LinearKernel"}
RECIPES = [
    Recipe("int8", Scheme("int8", "channel")),
    Recipe("int4", Scheme("int4", "group", group_size=64, scale_dtype="bf16")),
]


@pytest.fixture(scope="module")
def folder() -> str:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    return local_model.resolve_model()


def quantised(folder: str, recipe: Recipe) -> QuantizedModel:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return quantized_copy(model, recipe)


def simulated(made: QuantizedModel, folder: str, text: str) -> tuple[list[str], float]:
    """Greedy tokens after PROMPT, and the mean log-probability of ``text`` behind it."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    start = len(tokenizer(PROMPT)["input_ids"])
    ids = torch.tensor([tokenizer(PROMPT + text)["input_ids"]])
    with torch.inference_mode():
        logits = made.model(ids).logits[0].float().log_softmax(-1)
    chosen = ids[0, start:]
    own = logits[start - 1 : -1]
    best = [tokenizer.decode(int(i)) for i in own.argmax(-1)]
    return best, float(own.gather(1, chosen[:, None]).mean())


def greedy(server: VllmServer) -> dict[str, Any]:
    body = {"model": server.model_name, "prompt": PROMPT, "max_tokens": TOKENS,
            "temperature": 0, "logprobs": 0, "ignore_eos": True}  # fmt: skip
    request = urllib.request.Request(
        f"{server.base_url}/v1/completions", data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())["choices"][0]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
def test_engine_says_what_the_simulated_model_says(
    folder: str, tmp_path: Path, recipe: Recipe
) -> None:
    made = quantised(folder, recipe)
    target = export_checkpoint(made, tmp_path / recipe.name, source=folder)
    args = VllmArgs.make(model=str(target), dtype="bfloat16")
    with VllmServer(args, folder=tmp_path / "server") as server:
        choice = greedy(server)
        log = server.log.read_text()
    assert KERNELS[recipe.name] in log
    engine = sum(choice["logprobs"]["token_logprobs"]) / TOKENS
    best, ours = simulated(made, folder, choice["text"])
    agree = sum(a == b for a, b in zip(best, choice["logprobs"]["tokens"], strict=False))
    # int8 activations and bf16 arithmetic turn close calls: 14 of 16 were seen to agree
    assert agree >= 0.75 * TOKENS
    assert engine == pytest.approx(ours, abs=0.2)
