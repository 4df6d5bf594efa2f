"""Solutions of notebook 00."""

from __future__ import annotations

from types import MappingProxyType


def request_seconds(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """The first token ends the first wait; only the others cost a step each."""
    return ttft_s + (output_tokens - 1) * tpot_s


def steady_tokens_per_second(token_times_s: list[float]) -> float | None:
    """N tokens have n - 1 gaps between them; one token has no speed."""
    if len(token_times_s) < 2:
        return None
    return (len(token_times_s) - 1) / (token_times_s[-1] - token_times_s[0])


def weights_gib(parameters: int, bytes_per_parameter: float) -> float:
    """1 GiB is 2**30 bytes; a GB (10**9 bytes) is 7 % less."""
    return parameters * bytes_per_parameter / 2**30


def fits(prompt_tokens: int, max_tokens: int, max_model_len: int) -> bool:
    """Prompt and reply share the same limit."""
    return prompt_tokens + max_tokens <= max_model_len


def flags() -> dict[str, str]:
    """The four flags of the source's first command."""
    return {
        "the model name that requests must give": "--served-model-name",
        "the most tokens of prompt and reply together": "--max-model-len",
        "the number of cards that share every layer": "--tensor-parallel-size",
        "the share of a card's memory the engine may take": "--gpu-memory-utilization",
    }


SOLUTIONS = MappingProxyType({
    "00.1": request_seconds,
    "00.2": steady_tokens_per_second,
    "00.3": weights_gib,
    "00.4": fits,
    "00.5": flags,
})  # fmt: skip
