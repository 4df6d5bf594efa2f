"""How fast can a load client go before it measures itself?

Our client, ``vllm bench serve``, GuideLLM and AIPerf send to one mock server in one run. The
client is pinned to one core, the mock to another. For each client: the highest rate at which the
99th percentile of its reported TTFT lies less than 5 ms above what passed inside the mock, with
every request sent in time and none failed; its CPU time per 1,000 streamed tokens; its errors.
Where the mock itself was busy or late, the script says so instead of blaming the client.

    python benchmarks/client_rate.py                         our client and vllm, where installed
    python benchmarks/client_rate.py --guidellm PATH/guidellm --aiperf PATH/aiperf --json out.json

Peers may live in environments of their own: give the path of their command. Our client runs as
``turbo-lab bench`` does, with its journal, and with its sampler on the same core. Other work on the
machine adds to every lag: keep it quiet. The table says how much there was; on two busy cores one
client's limit moved by a third from run to run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rate_clients import CHUNKS, Client, aiperf, guidellm, ours, vllm
from rate_run import LAG_LIMIT_S, Outcome, one_run

RATES = (25, 50, 100, 150, 200, 300, 400, 500, 600, 800, 1000, 1250, 1500, 1750, 2000, 2400, 2800)
LOAD_S, LEAST, MOST = 4.0, 200, 4000
TRIES = 2
OURS = "turbo-lab bench"


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
        results: dict[str, list[Outcome]] = {}
        for client in clients:
            results[f"{client.name} {client.version}"] = ladder(client, rates, Path(home))
            if asked.json:
                rows = {name: [asdict(o) for o in found] for name, found in results.items()}
                asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(results))
    return 0


def chosen_clients(asked: argparse.Namespace, home: Path) -> list[Client]:
    """Ours and every peer that can run here."""
    from turbo_lab.core.errors import TurboLabError
    from turbo_lab.engines import local_model, vllm_cli

    found = [ours(OURS)]
    try:
        version = vllm_cli.vllm_version()
        tokenizer = local_model.resolve_model()
        found.append(vllm(tokenizer, version))
        if program := asked.guidellm or shutil.which("guidellm"):
            found.append(guidellm(program, tokenizer))
        if program := asked.aiperf or shutil.which("aiperf"):
            found.append(aiperf(program, tokenizer, home))
    except TurboLabError as error:
        print(f"peers are left out: {error}", file=sys.stderr)
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
            if best is None or _rank(seen) < _rank(best):
                best = seen
            if best.sustained:
                break
        assert best is not None
        best = replace(best, cpu_s=max(0.0, best.cpu_s - idle_cpu_s))
        out.append(best)
        print(f"{client.name:18} {line(best)}", flush=True)
        if not best.sustained:
            break
    return out


def _rank(seen: Outcome) -> tuple[bool, float]:
    return not seen.sustained, 9.0 if seen.lag_p99_s is None else seen.lag_p99_s


def line(found: Outcome) -> str:
    """One rate in words."""
    sent = "-" if found.sent_rate is None else f"{found.sent_rate:.0f}"
    busy = "-" if found.mock_busy is None else f"{found.mock_busy:.0%}"
    return (
        f"{found.rate:5.0f}/s asked, {sent:>5} sent, P99 behind schedule {ms(found.late_p99_s)}, "
        f"TTFT lag P99 {ms(found.lag_p99_s)}, {found.errors} errors, mock {busy} busy and "
        f"{ms(found.mock_late_p99_s)} late: {verdict(found)}"
    )


def verdict(found: Outcome) -> str:
    """Sustained or not, and whose fault it was."""
    if found.sustained:
        return "sustained"
    return "no verdict, the mock is the limit" if found.mock_is_limit else "not sustained"


def ms(value_s: float | None) -> str:
    """Milliseconds, or a dash."""
    return "-" if value_s is None else f"{value_s * 1e3:.1f} ms"


def per_thousand_ms(found: Outcome) -> float:
    """CPU milliseconds per 1,000 streamed tokens, start-up taken off."""
    return found.cpu_s * 1e6 / found.tokens if found.tokens else float("nan")


def table(results: Mapping[str, Sequence[Outcome]]) -> str:
    """The result, and the ratio of our rate to the best peer's."""
    out = ["", f"{CHUNKS} chunks a reply, TTFT lag P99 below {LAG_LIMIT_S * 1e3:g} ms, "
           f"{time.strftime('%Y-%m-%d')}",
           f"{'client':32} {'requests/s':>10} {'lag P99':>8} {'CPU ms per 1,000 tokens':>24} "
           f"{'errors':>6}  next rate"]  # fmt: skip
    best = {name: max((o.rate for o in found if o.sustained), default=0.0)
            for name, found in results.items()}  # fmt: skip
    for name, found in results.items():
        top = next((o for o in reversed(found) if o.sustained), found[-1])
        after = "" if found[-1].sustained else f"{found[-1].rate:.0f}: {verdict(found[-1])}"
        out.append(f"{name:32} {best[name]:10.0f} {ms(top.lag_p99_s):>8} "
                   f"{per_thousand_ms(top):24.0f} {top.errors:6}  {after}")  # fmt: skip
    others = [o.others_busy for found in results.values() for o in found if o.others_busy]
    if others:
        middle = statistics.median(others)
        out.append(f"other processes took {middle:.0%} of the machine (median of the runs)")
    return "\n".join(out + ratio_lines(best, results))


def ratio_lines(best: Mapping[str, float], results: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """Our rate over the best peer's; at least, where we never met our own limit."""
    mine = next((name for name in best if name.startswith(OURS)), None)
    peers = [rate for name, rate in best.items() if name != mine]
    if mine is None or not peers or not max(peers):
        return []
    last = results[mine][-1]
    open_end = "at least " if last.sustained or last.mock_is_limit else ""
    return [f"ratio to the best peer: {open_end}{best[mine] / max(peers):.1f}"]


if __name__ == "__main__":
    sys.exit(main())
