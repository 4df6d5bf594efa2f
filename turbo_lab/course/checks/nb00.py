"""Exercises of notebook 00: reading one request."""

from __future__ import annotations

from typing import Any

from turbo_lab.course.grading import Exercise, Mistake, case


def _speed_ignores_the_wait(speed: Any) -> str | None:
    """Moving all tokens later must not change the steady speed."""
    times = [0.5, 0.6, 0.7, 0.8]
    late = [t + 3.0 for t in times]
    if abs(speed(times) - speed(late)) < 1e-6:
        return None
    return "Waiting 3 s longer for the first token must not change the steady speed."


EXERCISES = (
    Exercise(
        id="00.1",
        task="How long does a whole reply take? request_seconds(ttft_s, tpot_s, output_tokens)",
        cases=(
            case(1.0, 0.05, 101, gives=6.0),
            case(0.2, 0.03, 1, gives=0.2, hint="A one-token reply ends with its first token."),
            case(1.2, 0.045, 128, gives=6.915),
        ),
        mistakes=(
            Mistake(
                "The first token is counted twice: TTFT already holds it.",
                lambda ttft, tpot, n: ttft + n * tpot,
            ),
            Mistake("The wait for the first token is missing.", lambda ttft, tpot, n: n * tpot),
            Mistake("TTFT is paid once, not per token.", lambda ttft, tpot, n: n * (ttft + tpot)),
        ),
    ),
    Exercise(
        id="00.2",
        task="Tokens per second once the reply flows: steady_tokens_per_second(token_times_s), "
        "None for fewer than two tokens",
        cases=(
            case([0.4, 0.5, 0.6, 0.7, 0.8], gives=10.0),
            case([2.0, 2.5], gives=2.0),
            case([0.3], gives=None, hint="One token has no speed: return None, not 0."),
            case([], gives=None),
        ),
        properties=(_speed_ignores_the_wait,),
        mistakes=(
            Mistake(
                "Five tokens have four gaps.",
                lambda t: len(t) / (t[-1] - t[0]) if len(t) > 1 else None,
            ),
            Mistake(
                "This counts the wait for the first token too.",
                lambda t: len(t) / t[-1] if t else None,
            ),
            Mistake(
                "0 tokens per second would be a measurement; there is none.",
                lambda t: (len(t) - 1) / (t[-1] - t[0]) if len(t) > 1 else 0.0,
            ),
        ),
    ),
    Exercise(
        id="00.3",
        task="Memory of the weights in GiB: weights_gib(parameters, bytes_per_parameter)",
        cases=(
            case(2**30, 2, gives=2.0),
            case(134_515_008, 2, gives=0.25056, tolerance=1e-4),
            case(8_030_261_248, 2, gives=14.9575, tolerance=1e-4),
            case(8_030_261_248, 0.5, gives=3.7394, tolerance=1e-4, hint="int4: half a byte."),
        ),
        mistakes=(
            Mistake("That is GB (10**9 bytes); GiB is 2**30.", lambda n, b: n * b / 1e9),
            Mistake("Bytes, not bits.", lambda n, b: n * b * 8 / 2**30),
            Mistake("Bytes per parameter may be a fraction.", lambda n, b: n * int(b) / 2**30),
        ),
    ),
    Exercise(
        id="00.4",
        task="Is the request accepted? fits(prompt_tokens, max_tokens, max_model_len)",
        cases=(
            case(8000, 192, 8192, gives=True, hint="Exactly full still fits."),
            case(8000, 193, 8192, gives=False),
            case(100, 8192, 8192, gives=False, hint="The reply needs room beside the prompt."),
            case(100, 9000, 8192, gives=False),
            case(1, 1, 8192, gives=True),
        ),
        mistakes=(
            Mistake("The reply needs room too.", lambda p, m, limit: p <= limit),
            Mistake("Each alone may fit and both together not.", lambda p, m, n: max(p, m) <= n),
            Mistake("The limit itself is allowed.", lambda p, m, limit: p + m < limit),
        ),
    ),
    Exercise(
        id="00.5",
        task="Which flag of `vllm serve` sets what? Fill in the flags.",
        expected={
            "the model name that requests must give": "--served-model-name",
            "the most tokens of prompt and reply together": "--max-model-len",
            "the number of cards that share every layer": "--tensor-parallel-size",
            "the share of a card's memory the engine may take": "--gpu-memory-utilization",
        },
        mistakes=(
            Mistake(
                "--max-tokens belongs to a request; the server's limit has another name.",
                {
                    "the model name that requests must give": "--served-model-name",
                    "the most tokens of prompt and reply together": "--max-tokens",
                    "the number of cards that share every layer": "--tensor-parallel-size",
                    "the share of a card's memory the engine may take": "--gpu-memory-utilization",
                },
            ),
            Mistake(
                "Pipeline stages hold different layers; tensor parallelism shares every layer.",
                {
                    "the model name that requests must give": "--served-model-name",
                    "the most tokens of prompt and reply together": "--max-model-len",
                    "the number of cards that share every layer": "--pipeline-parallel-size",
                    "the share of a card's memory the engine may take": "--gpu-memory-utilization",
                },
            ),
        ),
    ),
)
