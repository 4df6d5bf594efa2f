"""What notebook 12 repeats: starting both engines, rows for its record, the arms beside a reply."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from turbo_lab.core.config import Dials
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.core.host import repository_root
from turbo_lab.engines.kv_connector.args import Pair
from turbo_lab.engines.kv_connector.codec import RAW
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate.handover import HandoverCost
from turbo_lab.experiment.quality_prompts import document
from turbo_lab.parallel.disagg import Handing, post_json
from turbo_lab.parallel.disagg_study import disturb, disturb_one, time_ways
from turbo_lab.workload.prompts import token_id_prompts

SPECIAL = range(10)  # ids with a meaning of their own in the course's models
QUIET_TOKENS = 40
AFTER_TOKENS = 12  # of the reply, behind the end of the prompt's part


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


def beside(
    parts: Handing, *, prompt: Sequence[int], reply_prompt: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """A reply alone, beside a prompt in its own engine, and beside one through both.

    The reply is as long as it must be for the prompt to end beside it: from its own time per token
    and the prompt's time in the arm before.
    """
    own = {"reply_prompt": reply_prompt}
    parts.set_rate(None)
    alone = disturb(parts, prompt, arm="alone", prompt_url=None, reply_tokens=QUIET_TOKENS, **own)
    together = disturb(parts, prompt, arm="together", prompt_url=parts.consumer.base_url,
                       reply_tokens=QUIET_TOKENS, **own)  # fmt: skip
    tokens = math.ceil(1.6 * (together.prompt_s or 0.0) / alone.quiet_s) + AFTER_TOKENS
    with parts.proxy() as proxy:
        separated = disturb(parts, prompt, arm="separated", prompt_url=proxy.base_url,
                            reply_tokens=tokens, **own)  # fmt: skip
        if not proxy.records[-1].offered_tokens or proxy.records[-1].reason:
            raise UnmeasuredError(f"nothing was handed over: {proxy.records[-1].reason}")
    return {run.arm: run.to_dict() for run in (alone, together, separated)}


def beside_one(
    server: VllmServer, *, prompt: Sequence[int], reply_prompt: Sequence[int]
) -> dict[str, Any]:
    """The same beside a reply in one engine that has all cores."""
    return disturb_one(server, prompt, arm="whole", prompt_url=server.base_url,
                       reply_prompt=reply_prompt, reply_tokens=QUIET_TOKENS).to_dict()  # fmt: skip


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
