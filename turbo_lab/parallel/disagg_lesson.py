"""What notebook 12 repeats: starting both engines, rows for its record, the arms beside a reply."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from turbo_lab.client.stream import send_one
from turbo_lab.core.config import Dials
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.core.host import repository_root
from turbo_lab.engines.kv_connector.args import Pair
from turbo_lab.engines.kv_connector.codec import RAW
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate.handover import HandoverCost
from turbo_lab.estimate.prefill import PrefillLaw
from turbo_lab.experiment.prefix import prompt_request
from turbo_lab.experiment.quality_prompts import document
from turbo_lab.metrics.definitions import outcome
from turbo_lab.parallel.disagg import Handing, post_json
from turbo_lab.parallel.disagg_study import Disturbed, disturb, disturb_one, time_ways
from turbo_lab.workload.prompts import token_id_prompts

SPECIAL = range(10)  # ids with a meaning of their own in the course's models
ALONE, TOGETHER, SEPARATED, WHOLE = "alone", "together", "separated", "one engine, both cores"
LEAST_BLOCKS = 4
REPLY_PROMPT_TOKENS, QUIET_TOKENS = 64, 48
LONGER = 2.5  # times the prompt's own time: beside a reply it takes longer
AFTER_TOKENS, MOST_REPLY_TOKENS = 16, 1500
PATIENCE_S = 120.0


def exact(dials: Dials) -> dict[str, Any]:
    """Settings under which replies must be equal letter by letter: float32 on a CPU."""
    return {"dtype": "float32"} if dials.mode == "cpu" else {}


def both(lab: Any, start: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    """Producer and consumer, each noted in the lesson's record."""
    started: list[tuple[Any, Any]] = []

    def side(index: int) -> Any:
        if not started:
            started.append(start())
        return started[0][index]

    return lab.engine(lambda: side(0)), lab.engine(lambda: side(1))


def core_lists(pair: Pair) -> dict[str, list[int]]:
    """Core ids of each side."""
    return {"producer": list(pair.cores("producer")), "consumer": list(pair.cores("consumer"))}


def prompts(count: int, *, tokens: int, vocab_size: int, seed: int) -> list[list[int]]:
    """Random prompts that share nothing with each other; other lengths give other prompts."""
    made = token_id_prompts(
        count, tokens=tokens, vocab_size=vocab_size, seed=seed * 1000 + tokens, avoid=SPECIAL
    )
    return [list(ids) for ids in made]


def texts(server: VllmServer, *, count: int, tokens: int) -> list[list[int]]:
    """Beginnings of real text, each from another place of the course's passages."""
    told = post_json(
        f"{server.base_url}/tokenize",
        {"model": server.model_name, "prompt": document("en"), "add_special_tokens": False},
        timeout_s=60.0,
    )
    ids = [int(token) for token in told["tokens"]]
    apart = (len(ids) - tokens) // max(1, count - 1)
    if apart < 1:
        raise UnmeasuredError(f"{len(ids)} tokens of text are too few for {count} of {tokens}")
    return [ids[i * apart : i * apart + tokens] for i in range(count)]


def rows(
    parts: Handing, ids: Sequence[int], *, rates: Sequence[float | None], passes: int = 1,
    wire: str = RAW,
) -> list[dict[str, Any]]:  # fmt: skip
    """``time_ways`` as plain data for a record; texts of random prompts are left out."""
    found = time_ways(parts, ids, rates_bytes_s=rates, passes=passes, wire=wire)
    return [{k: v for k, v in row.to_dict().items() if k != "text"} for row in found]


def one_way(
    parts: Handing, *, tokens: int, rate: float, wire: str, vocab_size: int, seed: int
) -> dict[str, Any]:
    """One hand-over at one rate in one format."""
    ids = prompts(1, tokens=tokens, vocab_size=vocab_size, seed=seed)[0]
    moved = parts.ask(ids, offer=parts.offer(ids), rate_bytes_s=rate, wire=wire)
    if moved.reason:
        raise UnmeasuredError(moved.reason)
    return {k: v for k, v in moved.to_dict().items() if k != "text"}


def fixed_s(rows: Sequence[Mapping[str, Any]], cost: HandoverCost) -> float:
    """Fixed time of a hand-over: TTFT on a link without limit, less the rest; never below 0."""
    found = [row["ttft_s"] - cost.rest_s(row["prompt_tokens"]) for row in rows
             if row["arm"] != "recompute"]  # fmt: skip
    return max(0.0, median(found))


def middle(samples: Sequence[float]) -> float:
    """The median. Raises UnmeasuredError for none."""
    if not samples:
        raise UnmeasuredError("no sample")
    return float(median(samples))


def blocks_for(
    seconds: float, *, law: PrefillLaw, block_tokens: int, longest_tokens: int, room_tokens: int
) -> int:
    """Whole blocks that take about so long to compute, at least four and within the sequence."""
    most = (longest_tokens - room_tokens) // block_tokens
    fits = [n for n in range(LEAST_BLOCKS, most + 1)
            if law.seconds(tokens=n * block_tokens + 1) <= seconds]  # fmt: skip
    return max(fits, default=LEAST_BLOCKS)


def through_both(
    parts: Handing, *, tokens: int, passes: int, vocab_size: int, seed: int
) -> list[dict[str, float]]:
    """Prompts through the proxy and both engines, nothing beside them: where their time goes.

    ``ttft_s`` is the client's; ``prefill_s`` the producer's answer, as the proxy saw it.
    """
    parts.set_rate(None)
    found = []
    made = prompts(passes, tokens=tokens, vocab_size=vocab_size, seed=seed + 1)
    with parts.proxy() as proxy:
        for ids in made:
            request = prompt_request(ids, model=parts.consumer.model_name)
            run = send_one(request, base_url=proxy.base_url, timeout_s=PATIENCE_S)
            record = proxy.records[-1]
            if not outcome(run).ok or not record.offered_tokens or record.reason:
                raise UnmeasuredError(f"{outcome(run).reason}; hand-over: {record.reason}")
            found.append({"ttft_s": (run.closed_s or 0.0) - (run.sent_s or 0.0),
                          "prefill_s": record.prefill_s or 0.0})  # fmt: skip
    return found


def beside(
    parts: Handing, *, tokens: int, rounds: int, vocab_size: int, seed: int
) -> list[dict[str, Any]]:
    """A reply alone, beside a prompt in its own engine, and beside one through both, in turns.

    The reply is as long as it must be for the prompt to end beside it: from its own time per token
    and the prompt's time in the arm before.
    """
    parts.set_rate(None)
    found = []
    for turn in range(rounds):
        prompt, other = prompts(2, tokens=tokens, vocab_size=vocab_size, seed=seed + 2 + turn)
        own = {"reply_prompt": other[:REPLY_PROMPT_TOKENS]}
        alone = disturb(parts, prompt, arm=ALONE, prompt_url=None, reply_tokens=QUIET_TOKENS,
                        **own)  # fmt: skip
        together = disturb(parts, prompt, arm=TOGETHER, prompt_url=parts.consumer.base_url,
                           reply_tokens=QUIET_TOKENS, **own)  # fmt: skip
        long = math.ceil(LONGER * (together.prompt_s or 0.0) / alone.quiet_s) + AFTER_TOKENS
        with parts.proxy() as proxy:
            apart = disturb(parts, prompt, arm=SEPARATED, prompt_url=proxy.base_url,
                            reply_tokens=min(long, MOST_REPLY_TOKENS), **own)  # fmt: skip
            if not proxy.records[-1].offered_tokens or proxy.records[-1].reason:
                raise UnmeasuredError(f"nothing was handed over: {proxy.records[-1].reason}")
        found += [run.to_dict() for run in (alone, together, apart)]
    return found


def beside_one(
    server: VllmServer, *, tokens: int, rounds: int, vocab_size: int, seed: int
) -> list[dict[str, Any]]:
    """The same beside a reply in one engine that has all cores."""
    found = []
    for turn in range(rounds):
        prompt, other = prompts(2, tokens=tokens, vocab_size=vocab_size, seed=seed + 2 + turn)
        run = disturb_one(server, prompt, arm=WHOLE, prompt_url=server.base_url,
                          reply_prompt=other[:REPLY_PROMPT_TOKENS],
                          reply_tokens=QUIET_TOKENS)  # fmt: skip
        found.append(run.to_dict())
    return found


def by_arm(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Disturbed]]:
    """Runs of every arm, in the order of the arms."""
    found: dict[str, list[Disturbed]] = {}
    for row in rows:
        found.setdefault(row["arm"], []).append(Disturbed.from_dict(row))
    return found


def published() -> dict[str, Any]:
    """Published rows: ``reuse`` (least bandwidth), ``links`` (bytes/s), ``rows`` for a table."""
    folder = repository_root() / "data" / "reference"
    told = json.loads((folder / "disaggregation.json").read_text())["rows"]
    reuse = json.loads((folder / "roofline.json").read_text())["reuse_bandwidth"]["rows"]
    short = {row["system"].partition(",")[0]: row for row in told}
    links = {f"{name}: {row['link_gbit_s']} Gbit/s": row["link_gbit_s"] * 1e9 / 8
             for name, row in short.items() if "link_gbit_s" in row}  # fmt: skip
    table = [{"system": row["system"], "against": row["against"] or "nothing",
              "figures": _figures(row["figures"])} for row in told]  # fmt: skip
    return {"reuse": reuse, "links": links, "rows": table}


def _figures(figures: Mapping[str, Any]) -> str:
    parts = [f"{name.replace('_', ' ')} {value}" for name, value in figures.items()
             if not isinstance(value, dict)]  # fmt: skip
    for value in figures.values():
        if isinstance(value, dict):
            parts += [f"{key}: {list(each.values())} %" for key, each in value.items()]
    return "; ".join(parts)
