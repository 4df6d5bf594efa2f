"""How fast can a load client go before it measures itself?

Our client, ``vllm bench serve``, GuideLLM and AIPerf send to one mock server in one run. The
client is pinned to one core, the mock to another. For each client: the highest rate at which the
99th percentile of its reported TTFT lies less than 5 ms above what passed inside the mock, with
every request sent in time and none failed; its CPU time per 1,000 streamed tokens; its errors.

    python benchmarks/client_rate.py                         our client and vllm, where installed
    python benchmarks/client_rate.py --guidellm PATH/guidellm --aiperf PATH/aiperf --json out.json

Peers may live in environments of their own: give the path of their command.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rate_clients import CHUNKS, Client, aiperf, guidellm, ours, vllm

from turbo_lab.engines.base import http_get
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.metrics.percentiles import percentile

TTFT_S, GAP_S = 0.05, 0.01
RATES = (25, 50, 100, 150, 200, 300, 400, 500, 600, 800, 1000)
LOAD_S, LEAST, MOST = 4.0, 200, 3000
LAG_LIMIT_S, RATE_SHARE = 0.005, 0.95
TRIES = 2


@dataclass(frozen=True)
class Outcome:
    """One client at one rate."""

    rate: float
    sent_rate: float | None
    lag_p99_s: float | None
    errors: int
    cpu_s: float
    tokens: int

    @property
    def sustained(self) -> bool:
        """Sent in time, without errors, and the lag is below the limit."""
        near = self.sent_rate is not None and self.sent_rate >= RATE_SHARE * self.rate
        return near and not self.errors and (self.lag_p99_s or 1.0) < LAG_LIMIT_S


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all clients up the ladder of rates and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--guidellm", help="path of the guidellm command")
    parser.add_argument("--aiperf", help="path of the aiperf command")
    parser.add_argument("--only", help="names of clients, separated by commas")
    parser.add_argument("--rates", help="requests/s, separated by commas")
    parser.add_argument("--json", type=Path, help="write all results here")
    asked = parser.parse_args(arguments)
    rates = [float(r) for r in asked.rates.split(",")] if asked.rates else list(RATES)
    with tempfile.TemporaryDirectory(prefix="client-rate-") as home:
        clients = chosen_clients(asked, Path(home))
        results = {c.name: ladder(c, rates, Path(home)) for c in clients}
    print_table(results)
    if asked.json:
        rows = {name: [asdict(o) for o in found] for name, found in results.items()}
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def chosen_clients(asked: argparse.Namespace, home: Path) -> list[Client]:
    """Ours and every peer that can run here."""
    found = [ours()]
    from turbo_lab.core.errors import TurboLabError
    from turbo_lab.engines import local_model, vllm_cli

    try:
        vllm_cli.vllm_version()
        tokenizer = local_model.resolve_model()
    except TurboLabError as error:
        print(f"peers are left out: {error}")
        return found
    found.append(vllm(tokenizer))
    if program := asked.guidellm or shutil.which("guidellm"):
        found.append(guidellm(program, tokenizer))
    if program := asked.aiperf or shutil.which("aiperf"):
        found.append(aiperf(program, tokenizer, home))
    wanted = asked.only.split(",") if asked.only else None
    return [c for c in found if wanted is None or c.name in wanted]


def ladder(client: Client, rates: Sequence[float], home: Path) -> list[Outcome]:
    """Rates in turn until one is not sustained in any try; the best try of each counts."""
    out: list[Outcome] = []
    idle_cpu_s = one_run(client, 10.0, 10, home).cpu_s  # imports and set-up
    for rate in rates:
        count = int(min(MOST, max(LEAST, rate * LOAD_S)))
        best: Outcome | None = None
        for _ in range(TRIES):
            seen = one_run(client, rate, count, home)
            if best is None or (seen.lag_p99_s or 9.0) < (best.lag_p99_s or 9.0):
                best = seen
            if best.sustained:
                break
        assert best is not None
        best = Outcome(**{**asdict(best), "cpu_s": max(0.0, best.cpu_s - idle_cpu_s)})
        out.append(best)
        show(client, best)
        if not best.sustained:
            break
    return out


def one_run(client: Client, rate: float, count: int, home: Path) -> Outcome:
    """Start the mock and the client on their cores; read what both saw."""
    cores = sorted(os.sched_getaffinity(0))
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    script = Script(replies=(Reply(speech=Speech(TTFT_S, GAP_S, CHUNKS)),))
    (folder / "script.json").write_text(json.dumps(script.to_dict()))
    mock = subprocess.Popen(
        [sys.executable, "-m", "turbo_lab.engines.mock_server", "--script",
         str(folder / "script.json")],
        stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {cores[-1]}),
    )  # fmt: skip
    try:
        assert mock.stdout is not None
        url = mock.stdout.readline().split()[-1]
        cpu_s = run_client(client, url, rate, count, folder, core=cores[0])
        log = json.loads(http_get(url, "/mock/log", timeout_s=60)[1])
    finally:
        mock.terminate()
        mock.wait(10)
    try:
        ttfts, errors = client.read(folder)
    except (OSError, ValueError, KeyError, StopIteration) as error:
        print(f"{client.name} at {rate:g}/s left no result: {error!r}", file=sys.stderr)
        return Outcome(rate, None, None, count, cpu_s, 0)
    return judge(rate, count, log[-count:], ttfts, errors, cpu_s)


def run_client(
    client: Client, url: str, rate: float, count: int, folder: Path, *, core: int
) -> float:
    """Run it pinned to one core; returns the CPU seconds of its whole process tree."""
    before = os.times()
    with (folder / "client.log").open("w") as log:
        process = subprocess.Popen(
            client.command(url, rate, count, folder), stdout=log, stderr=log,
            env={**os.environ, **client.env}, cwd=client.cwd, start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )  # fmt: skip
        try:
            process.wait(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def judge(
    rate: float, count: int, log: list[dict[str, Any]], ttfts: list[float], errors: int,
    cpu_s: float,
) -> Outcome:  # fmt: skip
    """What the client reported against what passed inside the mock."""
    true = [
        first - entry["received_s"]
        for entry in log
        if (first := next((t for t, mark in entry["sends"] if mark == "content"), None))
    ]
    tokens = sum(mark == "content" for entry in log for _, mark in entry["sends"])
    received = sorted(entry["received_s"] for entry in log)
    span = received[-1] - received[0] if len(received) > 1 else 0.0
    high, truth = percentile(ttfts, 99), percentile(true, 99)
    lag = high - truth if high is not None and truth is not None else None
    missing = max(0, count - len(ttfts) - errors)
    sent = (len(received) - 1) / span if span > 0 else None
    return Outcome(rate, sent, lag, errors + missing, cpu_s, tokens)


def show(client: Client, found: Outcome) -> None:
    """One line while it runs."""
    lag = "-" if found.lag_p99_s is None else f"{found.lag_p99_s * 1e3:.1f} ms"
    sent = "-" if found.sent_rate is None else f"{found.sent_rate:.0f}"
    print(f"{client.name:18} {found.rate:5.0f}/s asked, {sent:>5} sent, TTFT lag p99 {lag:>9}, "
          f"{found.errors} errors, CPU {per_thousand(found):.0f} ms per 1,000 tokens, "
          f"{'sustained' if found.sustained else 'not sustained'}", flush=True)  # fmt: skip


def per_thousand(found: Outcome) -> float:
    """CPU milliseconds per 1,000 streamed tokens, start-up taken off."""
    return found.cpu_s * 1e6 / found.tokens if found.tokens else float("nan")


def print_table(results: dict[str, list[Outcome]]) -> None:
    """The result, and the ratio of our rate to the best peer's."""
    print(f"\n{CHUNKS} chunks a reply, {time.strftime('%Y-%m-%d')}")
    best = {n: max((o.rate for o in found if o.sustained), default=0.0)
            for n, found in results.items()}  # fmt: skip
    for name, found in results.items():
        top = next((o for o in reversed(found) if o.sustained), found[-1])
        print(f"{name:18} {best[name]:5.0f} requests/s sustained, "
              f"{per_thousand(top):.0f} ms CPU per 1,000 tokens, {top.errors} errors")  # fmt: skip
    peers = [rate for name, rate in best.items() if name != "turbo-lab"]
    if peers and max(peers) > 0 and "turbo-lab" in best:
        print(f"ratio to the best peer: {best['turbo-lab'] / max(peers):.1f}")


if __name__ == "__main__":
    sys.exit(main())
