"""The clients that client_rate.py compares: how each is called, and how its result is read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

CHUNKS = 16  # output tokens of each reply, one a chunk


@dataclass(frozen=True, eq=False)
class Client:
    """A client: its command for a rate, and how to read its TTFTs (s) and error count."""

    name: str
    version: str
    command: Callable[[str, float, int, Path], list[str]]
    read: Callable[[Path], tuple[list[float], int]]
    env: dict[str, str] = field(default_factory=dict)
    cwd: Path | None = None


def said_version(program: str) -> str:
    """What ``program --version`` ends with."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=120)
    words = said.stdout.split()
    return words[-1] if words else "(version unknown)"


def ours(name: str) -> Client:
    """``turbo-lab bench``, with its journal and its sampler."""

    def command(url: str, rate: float, count: int, folder: Path) -> list[str]:
        return [
            sys.executable, "-m", "turbo_lab.cli.main", "bench", url, "--model", "mock",
            "--rate", str(rate), "--arrivals", "constant", "--requests", str(count),
            "--input-tokens", "16", "--output-tokens", str(CHUNKS), "--no-calibrate",
            "--sample-every", "1", "--out", str(folder / "run"),
        ]  # fmt: skip

    def read(folder: Path) -> tuple[list[float], int]:
        record = json.loads((folder / "run" / "record.json").read_text())
        found = next(m for m in record["measurements"] if m["name"] == "ttft_s")["samples"]
        return [v for v in found if v is not None], found.count(None)

    return Client(name, metadata.version("turbo-lab"), command, read)


def vllm(tokenizer: str, version: str) -> Client:
    """``vllm bench serve`` of the installed vLLM."""

    def command(url: str, rate: float, count: int, folder: Path) -> list[str]:
        return [
            sys.executable, "-m", "turbo_lab.engines.vllm_cli", "bench", "serve",
            "--base-url", url, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
            "--model", "mock", "--tokenizer", tokenizer, "--dataset-name", "random",
            "--random-input-len", "16", "--random-output-len", str(CHUNKS),
            "--num-prompts", str(count), "--request-rate", str(rate), "--burstiness", "1000000",
            "--disable-tqdm", "--save-result", "--save-detailed", "--result-dir", str(folder),
            "--result-filename", "v.json",
        ]  # fmt: skip

    def read(folder: Path) -> tuple[list[float], int]:
        raw = json.loads((folder / "v.json").read_text())
        good = [t for t, e in zip(raw["ttfts"], raw["errors"], strict=True) if not e]
        return good, len(raw["ttfts"]) - len(good)

    return Client("vllm bench serve", version, command, read, {"VLLM_LOGGING_LEVEL": "ERROR"})


def guidellm(program: str, tokenizer: str) -> Client:
    """GuideLLM; its options as of 0.8."""

    def command(url: str, rate: float, count: int, folder: Path) -> list[str]:
        return [
            program, "run", "--backend", f"kind=openai_http,target={url},model=mock",
            "--profile", f"kind=constant,rate={rate}",
            "--constraint", f"kind=max_requests,count={count}",
            "--tokenizer", f"kind=hf_auto,model={tokenizer}",
            "--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={CHUNKS}",
            "--output", f"kind=json,path={folder / 'g.json'}", "--disable-console",
        ]  # fmt: skip

    def read(folder: Path) -> tuple[list[float], int]:
        run = json.loads((folder / "g.json").read_text())["benchmarks"][0]
        good = [r["time_to_first_token_ms"] for r in run["requests"]["successful"] or []]
        totals = run["metrics"]["request_totals"]
        return [t / 1e3 for t in good if t is not None], totals["errored"] + totals["incomplete"]

    return Client("GuideLLM", said_version(program), command, read, {"HF_HUB_OFFLINE": "1"})


def aiperf(program: str, tokenizer: str, home: Path) -> Client:
    """AIPerf; its options as of 0.13. The tokenizer must look like a hub name: a link is made."""
    link = home / "lab" / "model"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tokenizer)

    def command(url: str, rate: float, count: int, folder: Path) -> list[str]:
        return [
            program, "profile", "--model", "mock", "--url", url, "--endpoint-type", "chat",
            "--streaming", "--tokenizer", "lab/model", "--request-rate", str(rate),
            "--request-rate-mode", "constant", "--request-count", str(count),
            "--synthetic-input-tokens-mean", "16", "--output-tokens-mean", str(CHUNKS),
            "--artifact-dir", str(folder), "--ui", "none",
        ]  # fmt: skip

    def read(folder: Path) -> tuple[list[float], int]:
        rows = [json.loads(x) for x in (folder / "profile_export.jsonl").read_text().splitlines()]
        good = [r["metrics"]["time_to_first_token"]["value"] / 1e3 for r in rows
                if not r.get("error")]  # fmt: skip
        return good, len(rows) - len(good)

    return Client("AIPerf", said_version(program), command, read, cwd=home)
