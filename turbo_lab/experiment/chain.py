"""A small retrieval-and-tool chain: find a text, ask a tool where needed, let the model write.

Every stage is real and timed: keyword search over the project's own passages, a tool that runs in a
process of its own (as agents run theirs), and a request to a server. The questions and their right
answers lie in ``data/prompts/chain.jsonl``.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from turbo_lab.client.stream import send_one
from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.experiment.chain_tools import run_tool
from turbo_lab.experiment.quality_checks import mentions_any
from turbo_lab.experiment.quality_prompts import load_passages, prompts_folder
from turbo_lab.metrics import definitions
from turbo_lab.workload.request import Request
from turbo_lab.workload.retrieval import Corpus, corpus_of

FILE = "chain.jsonl"
FIELDS = {"id", "question", "tool", "answers"}


@dataclass(frozen=True)
class ChainQuestion:
    """One question. ``tool``: its name and arguments, empty where none is asked."""

    id: str
    question: str
    tool: tuple[str, ...]
    answers: tuple[str, ...]


def chain_questions(count: int | None = None) -> tuple[ChainQuestion, ...]:
    """The first ``count`` questions (all by default); every fifth one needs a tool.

    Raises UsageError for a line that breaks the schema or a count beyond the file.
    """
    out = []
    for number, line in enumerate((prompts_folder() / FILE).read_text("utf-8").splitlines(), 1):
        row = json.loads(line)
        if row.keys() != FIELDS:
            raise UsageError(f"{FILE} line {number} has {sorted(row)}, not {sorted(FIELDS)}")
        out.append(ChainQuestion(row["id"], row["question"], tuple(row["tool"] or ()),
                                 tuple(row["answers"])))  # fmt: skip
    if count is not None and not 1 <= count <= len(out):
        raise UsageError(f"{count} questions; there are {len(out)} in {FILE}")
    return tuple(out[:count])


def chain_corpus() -> Corpus:
    """The English passages, each with its title."""
    return corpus_of([f"{p.title}. {p.text}" for p in load_passages("en")])


@dataclass(frozen=True)
class Link:
    """One question through the chain, in seconds per stage; ``right`` by its known answers."""

    id: str
    tool: str
    retrieve_s: float
    tool_s: float
    ttft_s: float
    decode_s: float
    whole_s: float
    prompt_tokens: int
    reply_tokens: int
    reply: str
    right: bool

    @property
    def inference_s(self) -> float:
        """From sending the request to the last text."""
        return self.ttft_s + self.decode_s

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Link:
        """Inverse of ``asdict``."""
        return cls(**raw)


def prompt_of(question: ChainQuestion, *, text: str, told: str = "") -> str:
    """What the model is asked: the retrieved text, the tool's answer, the question."""
    tool = f"A tool computed: {told}\n\n" if told else ""
    return (
        f"Answer the question in one full sentence.\n\nText: {text}\n\n{tool}"
        f"Question: {question.question}"
    )


def prepare(question: ChainQuestion, corpus: Corpus) -> tuple[str, float, float]:
    """The prompt of a question, and the seconds that search and tool took."""
    begin_s = time.perf_counter()
    text = corpus.texts[corpus.search(question.question)[0]]
    found_s = time.perf_counter()
    told = run_tool(question.tool) if question.tool else ""
    end_s = time.perf_counter() if question.tool else found_s
    return prompt_of(question, text=text, told=told), found_s - begin_s, end_s - found_s


def prompts(questions: Sequence[ChainQuestion]) -> tuple[str, ...]:
    """The prompts that these questions send, tools included (about 0.3 s for each estimate)."""
    corpus = chain_corpus()
    return tuple(prepare(question, corpus)[0] for question in questions)


def run_chain(
    questions: Sequence[ChainQuestion], *, base_url: str, model: str, reply_tokens: int
) -> list[dict[str, Any]]:
    """Every question through all stages, one after the other; a row per question.

    Replies have exactly ``reply_tokens``, so that two runs did the same work. Raises
    UnmeasuredError when a request fails: the chain has no answer then.
    """
    corpus = chain_corpus()
    corpus.search("warm up")  # Counts the words once, as a service does when it starts.
    form = Request("", model=model, max_tokens=reply_tokens, extra={"ignore_eos": True})
    return [asdict(_link(q, corpus, base_url, form)) for q in questions]


def _link(question: ChainQuestion, corpus: Corpus, base_url: str, form: Request) -> Link:
    begin_s = time.perf_counter()
    prompt, retrieve_s, tool_s = prepare(question, corpus)
    reply = send_one(replace(form, prompt=prompt, request_id=question.id), base_url=base_url)
    whole_s = time.perf_counter() - begin_s
    state = definitions.outcome(reply)
    ttft_s, e2e_s = definitions.ttft_s(reply), definitions.e2e_s(reply)
    if not state.ok or ttft_s is None or e2e_s is None:
        raise UnmeasuredError(f"{question.id}: {state.reason or reply.error or 'no text came'}")
    return Link(
        id=question.id, tool=" ".join(question.tool[:1]), retrieve_s=retrieve_s, tool_s=tool_s,
        ttft_s=ttft_s, decode_s=e2e_s - ttft_s, whole_s=whole_s,
        prompt_tokens=definitions.input_tokens(reply) or 0,
        reply_tokens=definitions.output_tokens(reply) or 0,
        reply=reply.text or "", right=mentions_any(reply.text or "", question.answers),
    )  # fmt: skip


def stage_seconds(links: Sequence[Link]) -> dict[str, float]:
    """Sum of each stage over all questions. ``rest`` is the chain's own work between them."""
    sums = {
        "retrieval": sum(x.retrieve_s for x in links),
        "tool": sum(x.tool_s for x in links),
        "first token": sum(x.ttft_s for x in links),
        "further tokens": sum(x.decode_s for x in links),
    }
    return {**sums, "rest": max(0.0, sum(x.whole_s for x in links) - sum(sums.values()))}


def inference_share(links: Sequence[Link]) -> float:
    """Share of the chain's time that the model takes. Raises UnmeasuredError without links."""
    if not links:
        raise UnmeasuredError("no question went through the chain")
    return sum(x.inference_s for x in links) / sum(x.whole_s for x in links)


def token_s(links: Sequence[Link]) -> float:
    """Median seconds per token behind the first one.

    Raises UnmeasuredError without them, and where they came together with the first: a late client
    finds a whole reply waiting and has not seen its pace.
    """
    paces = [x.decode_s / (x.reply_tokens - 1) for x in links if x.reply_tokens > 1]
    if not paces:
        raise UnmeasuredError("no reply has a second token")
    if not statistics.median(paces) > 0:
        raise UnmeasuredError("the replies came in one piece, their pace was not seen: ask again")
    return statistics.median(paces)
