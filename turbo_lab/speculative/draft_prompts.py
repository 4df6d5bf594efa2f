"""What the teacher is asked while it writes the draft's training data.

Topics, tasks and names lie in ``data/draft/prompts.toml``. A part of each list is held out, so that
no measured prompt shares its subject with a trained one. Later rounds also ask about the teacher's
own earlier replies (copy, correct, summarise this text): long and natural texts to copy.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import UsageError
from turbo_lab.experiment.quality_prompts import load_passages
from turbo_lab.speculative.draft_recipe import DataRecipe
from turbo_lab.speculative.prompts import CLASSES

FILE = "data/draft/prompts.toml"
HELD_OUT_EVERY = 6
SHARES = {"invented": 0.3, "prose": 0.18, "chat": 0.18, "copy": 0.17}  # of a round; edit: the rest
_SPLIT = ("topics", "code_tasks", "nouns", "people")  # lists with held-out members
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_CODE = re.compile(r"```(?:\w+)?\n(.+?)```", re.DOTALL)


@dataclass(frozen=True)
class DraftPrompt:
    """One user's turn. ``text`` None: the teacher invents it. ``temperature`` of the reply."""

    kind: str
    text: str | None
    temperature: float


def load_lists(*, held_out: bool, path: Path | None = None) -> dict[str, list[str]]:
    """The lists of the file, with only the held-out members or without them."""
    path = path or host.repository_root() / FILE
    try:
        lists = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    for name in _SPLIT:
        rows = list(enumerate(lists[name]))
        lists[name] = [v for i, v in rows if (i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1) == held_out]
    return lists


def round_prompts(
    recipe: DataRecipe, index: int, *, earlier: Sequence[str] = ()
) -> list[DraftPrompt]:
    """The prompts of one round. ``earlier``: the teacher's replies so far, as sources of text."""
    rng = random.Random(f"{recipe.seed}/{index}")
    lists = load_lists(held_out=False)
    kinds = [kind for kind, share in SHARES.items() for _ in range(round(share * recipe.rows))]
    kinds += ["edit"] * (recipe.rows - len(kinds))
    return [_prompt(kind, rng, lists, earlier) for kind in kinds[: recipe.rows]]


def held_out_prompts(recipe: DataRecipe) -> list[DraftPrompt]:
    """``recipe.held_out`` prompts of each class, all answered greedily.

    Half of the texts to copy are the project's own passages, the other subjects are held-out ones.
    """
    rng = random.Random(f"{recipe.seed}/held out")
    lists = load_lists(held_out=True)
    passages = [_excerpt(p.text, rng) for p in load_passages("en")]
    out = []
    for kind in CLASSES:
        for _ in range(recipe.held_out):
            sources = passages if kind == "copy" else ()
            prompt = _prompt(kind, rng, lists, sources)
            out.append(DraftPrompt(kind, prompt.text, 0.0))
    return out


def _prompt(
    kind: str, rng: random.Random, lists: dict[str, list[str]], earlier: Sequence[str]
) -> DraftPrompt:
    temperature = 0.0 if kind == "copy" or rng.random() < 0.6 else 0.7
    if kind == "invented":
        return DraftPrompt("chat", None, temperature)
    makers = {"copy": _copy, "edit": _edit}
    if kind in makers:
        return DraftPrompt(kind, makers[kind](rng, lists, earlier), temperature)
    text = rng.choice(lists[kind]).format(topic=rng.choice(lists["topics"]))
    if rng.random() < 0.4:
        text += " " + rng.choice(lists["manners"])
    return DraftPrompt(kind, text, temperature)


def _copy(rng: random.Random, lists: dict[str, list[str]], earlier: Sequence[str]) -> str:
    """Copy a text, or in one of four cases do something else with it."""
    long = [text for text in earlier if len(text) > 80]
    source = _excerpt(rng.choice(long), rng) if long and rng.random() < 0.6 else _story(rng, lists)
    return rng.choice(lists["copy" if rng.random() < 0.75 else "about"]).format(text=source)


def _edit(rng: random.Random, lists: dict[str, list[str]], earlier: Sequence[str]) -> str:
    """Change given code, or in one of three cases write new code."""
    if rng.random() < 0.33:
        return rng.choice(lists["code"]).format(task=rng.choice(lists["code_tasks"]))
    written = [m.group(1).strip() for text in earlier if (m := _CODE.search(text))]
    old, new = rng.sample(lists["nouns"], 2)
    words: dict[str, Any] = {"noun": old, "Noun": old.title(), "verb": rng.choice(lists["verbs"]),
                             "number": rng.randint(2, 99)}  # fmt: skip
    body = rng.choice(lists["bodies"]).format(**words)
    if written and rng.random() < 0.5:
        body = rng.choice(written)[:500]
    order = rng.choice(lists["edit"]).format(name=f"{words['verb']}_{new}", old=old, new=new)
    return f"{order}\n\n{body}"


def _story(rng: random.Random, lists: dict[str, list[str]]) -> str:
    """Two to five plain sentences."""
    return " ".join(
        " ".join(rng.choice(lists[name]) for name in ("people", "actions", "times")) + "."
        for _ in range(rng.randint(2, 5))
    )


def _excerpt(text: str, rng: random.Random) -> str:
    """Whole sentences of a text, at most about 90 words, from a random one on."""
    sentences = [s for s in _SENTENCE.split(text.strip()) if s]
    chosen: list[str] = []
    for sentence in sentences[rng.randrange(max(1, len(sentences) - 2)) :]:
        if chosen and sum(len(s.split()) for s in [*chosen, sentence]) > 90:
            break
        chosen.append(sentence)
    return " ".join(chosen)[:600]
