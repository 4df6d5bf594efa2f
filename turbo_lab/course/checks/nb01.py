"""Exercises of notebook 01: what a conversation holds in memory."""

from __future__ import annotations

import math
from typing import Any

from turbo_lab.core.units import GiB
from turbo_lab.course.grading import Exercise, Mistake, case


def _full(count: int, heads: int, dim: int) -> list[dict[str, Any]]:
    return [{"kind": "full", "kv_heads": heads, "head_dim": dim}] * count


def _window(count: int, heads: int, dim: int, window: int) -> list[dict[str, Any]]:
    row = {"kind": "window", "kv_heads": heads, "head_dim": dim, "window_tokens": window}
    return [row] * count


def _layer_bytes(layer: dict[str, Any]) -> int:
    return 4 * layer.get("kv_heads", 0) * layer.get("head_dim", 0)


def _latent_twice(layers: list[dict[str, Any]], tokens: int) -> int:
    kept = [min(tokens, la.get("window_tokens", tokens)) for la in layers]
    each = [_layer_bytes(la) or 4 * la.get("width", 0) for la in layers]
    return sum(n * size for n, size in zip(kept, each, strict=True))


def _without_window(layers: list[dict[str, Any]], tokens: int) -> int:
    return sum(tokens * (_layer_bytes(la) or 2 * la.get("width", 0)) for la in layers)


def _growing_only(layers: list[dict[str, Any]], tokens: int) -> int:
    return _without_window([la for la in layers if la["kind"] != "window"], tokens)


def _kv_heads(config: dict[str, Any]) -> int:
    return config.get("num_key_value_heads", config["num_attention_heads"])


def _doubling_batch_doubles(answer: Any) -> str | None:
    """Twice the conversations must hold twice the memory."""
    one, two = answer(3, 1000, 30, 3, 64, 2), answer(6, 1000, 30, 3, 64, 2)
    return None if math.isclose(two, 2 * one) else "Twice the batch must give twice the memory."


LLAMA_8B = {
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "hidden_size": 4096,
}  # fmt: skip
QWEN_06B = {
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "hidden_size": 1024, "head_dim": 128,
}  # fmt: skip
LLAMA2_7B = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
SMOLLM2 = {
    "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
    "hidden_size": 576,
}  # fmt: skip
GPT_OSS_20B = _full(12, 8, 64) + _window(12, 8, 64, 128)
DEEPSEEK_V3 = [{"kind": "latent", "width": 576}] * 61

EXERCISES = (
    Exercise(
        id="01.1",
        task="The source's estimator in GiB: kv_cache_gib(batch, context_tokens, layers, kv_heads, "
        "head_dim, value_bytes)",
        cases=(
            case(8, 4096, 32, 8, 128, 2, gives=4.0, hint="The source's own example: 4.00 GiB."),
            case(8, 4096, 32, 8, 128, 1, gives=2.0),
            case(1, 4096, 32, 32, 128, 2, gives=2.0, hint="Without GQA: 32 KV heads."),
            case(1, 128_000, 80, 8, 128, 2, gives=39.0625),
            case(0, 4096, 32, 8, 128, 2, gives=0.0),
        ),
        properties=(_doubling_batch_doubles,),
        mistakes=(
            Mistake(
                "That is GB (10**9 bytes), the engine counts GiB (2**30).",
                lambda b, s, n, h, d, e: 2 * b * s * n * h * d * e / 1e9,
            ),
            Mistake(
                "Keys and values are both kept: a factor 2 is missing.",
                lambda b, s, n, h, d, e: b * s * n * h * d * e / 2**30,
            ),
            Mistake(
                "Every layer keeps its own keys and values.",
                lambda b, s, n, h, d, e: 2 * b * s * h * d * e / 2**30,
            ),
            Mistake(
                "This is one conversation; the batch is missing.",
                lambda b, s, n, h, d, e: 2 * s * n * h * d * e / 2**30,
            ),
        ),
    ),
    Exercise(
        id="01.2",
        task="Bytes per token in bf16 from a config.json: kv_bytes_per_token(config)",
        cases=(
            case(LLAMA_8B, gives=131_072),
            case(QWEN_06B, gives=114_688, hint="head_dim is 128 here, not 1024 / 16 = 64."),
            case(LLAMA2_7B, gives=524_288, hint="No num_key_value_heads: one per query head."),
            case(SMOLLM2, gives=23_040),
        ),
        mistakes=(
            Mistake(
                "hidden_size / heads is only the default of head_dim.",
                lambda c: (
                    4
                    * c["num_hidden_layers"]
                    * _kv_heads(c)
                    * (c["hidden_size"] // c["num_attention_heads"])
                ),
            ),
            Mistake(
                "That counts query heads; GQA keeps fewer keys and values.",
                lambda c: (
                    4
                    * c["num_hidden_layers"]
                    * c["num_attention_heads"]
                    * c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
                ),
            ),
            Mistake(
                "hidden_size is the width of queries, not of what the cache keeps.",
                lambda c: 4 * c["num_hidden_layers"] * c["hidden_size"],
            ),
            Mistake(
                "Keys and values are both kept: a factor 2 is missing.",
                lambda c: (
                    2
                    * c["num_hidden_layers"]
                    * _kv_heads(c)
                    * c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
                ),
            ),
        ),
    ),
    Exercise(
        id="01.3",
        task="Bytes one request keeps in bf16, layer by layer: request_kv_bytes(layers, "
        "context_tokens)",
        cases=(
            case(_full(32, 8, 128), 1000, gives=131_072_000),
            case(GPT_OSS_20B, 100, gives=4_915_200, hint="Shorter than the window: all of it."),
            case(GPT_OSS_20B, 131_072, gives=24_576 * 131_072 + 24_576 * 128),
            case(DEEPSEEK_V3, 1, gives=70_272, hint="MLA keeps one vector per token and layer."),
            case([{"kind": "state"}] * 3 + _full(1, 4, 256), 10, gives=40_960),
        ),
        mistakes=(
            Mistake("A window layer keeps at most its window.", _without_window),
            Mistake("MLA keeps one vector, not a key and a value.", _latent_twice),
            Mistake("Window layers keep something too, up to their window.", _growing_only),
        ),
    ),
    Exercise(
        id="01.4",
        task="Tokens in the engine's pool: pool_tokens(pool_bytes, bytes_per_token, block_tokens)",
        cases=(
            case(GiB, 46_080, 128, gives=23_296, hint="SmolLM2 in fp32, as the log prints it."),
            case(GiB, 23_040, 128, gives=46_592),
            case(1_000, 100, 16, gives=0, hint="Not even one block."),
            case(16 * 100, 100, 16, gives=16),
        ),
        mistakes=(
            Mistake("The engine hands out whole blocks.", lambda pool, each, block: pool // each),
            Mistake(
                "A block that does not fit cannot be handed out: round down.",
                lambda pool, each, block: math.ceil(pool / each / block) * block,
            ),
            Mistake("These are blocks, not tokens.", lambda pool, each, b: pool // (each * b)),
        ),
    ),
    Exercise(
        id="01.5",
        task="Requests of full length that fit at once: concurrency(pool, block_tokens, "
        "request_tokens)",
        cases=(
            case(46_592, 128, 2_048, gives=22.75, hint="As the engine's log prints it."),
            case(46_592, 128, 2_000, gives=22.75, hint="2,000 tokens hold 16 blocks of 128."),
            case(2_042_016, 16, 2_048, gives=997.078125),
            case(46_592, 128, 1, gives=364.0),
        ),
        mistakes=(
            Mistake("The last block is held even when half empty.", lambda p, b, r: p / r),
            Mistake(
                "Whole blocks per request, but the quotient itself is not rounded.",
                lambda p, b, r: float((p // b) // math.ceil(r / b)),
            ),
            Mistake(
                "Rounding down forgets the last block.", lambda p, b, r: (p // b) / (r // b or 1)
            ),
        ),
    ),
    Exercise(
        id="01.6",
        task="GiB left for the cache on a card: kv_room_gib(total_gib, utilisation, weights_gib, "
        "peak_gib, other_gib); 0.0 when nothing is left",
        cases=(
            case(79.18, 0.9, 14.99, 4.76, 0.13, gives=51.382, hint="Llama-3.1-8B on an H100."),
            case(79.18, 0.95, 64.38, 7.38, 0.13, gives=3.331, tolerance=1e-6),
            case(24.0, 0.9, 30.0, 1.0, 0.1, gives=0.0, hint="Memory is never negative."),
        ),
        mistakes=(
            Mistake(
                "Weights are not all: the largest forward pass needs room too.",
                lambda total, use, w, peak, other: max(0.0, total * use - w),
            ),
            Mistake(
                "The share is taken from the whole card, not from what is left of it.",
                lambda total, use, w, peak, other: max(0.0, (total - w - peak - other) * use),
            ),
            Mistake(
                "Less than nothing cannot be handed out.",
                lambda total, use, w, peak, other: total * use - w - peak - other,
            ),
        ),
    ),
)
