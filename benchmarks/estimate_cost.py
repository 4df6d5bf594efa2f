"""CPU time of one ``turbo-lab estimate``, beside the import of the libraries it does without.

Prints seconds of CPU (user and system, children included) and ratios; run it with the project's
Python: ``python benchmarks/estimate_cost.py``. Exit code 1 when an estimate takes 0.5 s or more.
"""

from __future__ import annotations

import importlib.util
import resource
import statistics
import subprocess
import sys

LIMIT_S = 0.5
REPEATS = 5
ESTIMATE = (
    "from turbo_lab.cli.main import main; "
    "main(['estimate', '{model}', '--max-len', '32768', '--kv-cache-gib', '16', '--json'])"
)
MODELS = ("qwen3-8b", "deepseek-v3.2", "qwen3.5-27b", "nemotron-super-49b")
PEERS = ("torch", "transformers", "vllm")


def cpu_seconds(code: str) -> float:
    """User and system seconds of a fresh interpreter that runs ``code``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> int:
    """Print the table; 1 when the limit is broken."""
    bare = statistics.median(cpu_seconds("pass") for _ in range(REPEATS))
    print(f"{'bare interpreter':<28}{bare:8.3f} s")
    worst = 0.0
    for model in MODELS:
        code = ESTIMATE.format(model=model)
        taken = statistics.median(cpu_seconds(code) for _ in range(REPEATS))
        worst = max(worst, taken)
        print(f"{'estimate ' + model:<28}{taken:8.3f} s")
    for peer in PEERS:
        if importlib.util.find_spec(peer):
            taken = cpu_seconds(f"import {peer}")
            print(
                f"{'import ' + peer:<28}{taken:8.3f} s  ({taken / worst:.1f}x the slowest estimate)"
            )
    print(
        f"slowest estimate {worst:.3f} s, limit {LIMIT_S} s: {'ok' if worst < LIMIT_S else 'OVER'}"
    )
    return 0 if worst < LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
