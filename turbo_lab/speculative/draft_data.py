"""The draft's data on disk: rounds of texts by the teacher, a journal, and a digest of it all.

Each round is one safetensors file and one line of ``journal.jsonl``; the line is written last. A
killed run therefore loses the round in work and nothing else, and goes on with the same texts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError
from turbo_lab.records.digest import digest_of
from turbo_lab.records.journal import append_row, read_rows
from turbo_lab.speculative.draft_prompts import DraftPrompt, held_out_prompts, round_prompts
from turbo_lab.speculative.draft_recipe import DataRecipe
from turbo_lab.speculative.draft_sample import Written, write_texts

JOURNAL = "journal.jsonl"
HELD_OUT = "held-out"
Report = Callable[[str], None]


@dataclass(frozen=True)
class Conversation:
    """One text with its class; see ``Written`` for the fields of ``text``."""

    kind: str
    text: Written

    @property
    def reply(self) -> list[int]:
        """Ids of the reply."""
        return self.text.ids[self.text.reply_start :].tolist()


@dataclass(frozen=True)
class DraftData:
    """All conversations. ``held_out`` are never trained on; ``rows``: the journal."""

    training: tuple[Conversation, ...]
    held_out: tuple[Conversation, ...]
    rows: tuple[dict[str, Any], ...]

    @property
    def digest(self) -> str:
        """One digest over the ids of every conversation, in order."""
        return digest_of([[row["name"], row["digest"]] for row in self.rows])

    @property
    def tokens(self) -> int:
        """Tokens of the training texts, prompts included."""
        return sum(len(c.text.ids) for c in self.training)

    @property
    def seconds(self) -> float:
        """Time that the teacher wrote, all runs together."""
        return sum(row["seconds"] for row in self.rows)

    def halves(self) -> tuple[list[Conversation], list[Conversation]]:
        """Held-out conversations to choose the best weights with, and those to measure them."""
        return list(self.held_out[::2]), list(self.held_out[1::2])


def make_data(
    teacher: Any, tokenizer: Any, recipe: DataRecipe, folder: Path, *, report: Report = print
) -> DraftData:
    """Write what is missing of the data in ``folder``, and return it all."""
    rows = {row["name"]: row for row in read_rows(folder / JOURNAL)}
    parts: dict[str, list[Conversation]] = {}
    names = [HELD_OUT, *(f"round-{i:03d}" for i in range(recipe.rounds))]
    for number, name in enumerate(names):
        if name in rows:
            parts[name] = _load(folder / f"{name}.safetensors", rows[name])
            continue
        earlier = [c for n, part in parts.items() if n != HELD_OUT for c in part]
        started = time.monotonic()
        made = _make_round(teacher, tokenizer, recipe, number - 1, earlier)
        rows[name] = _save(folder, name, made, seconds=time.monotonic() - started)
        parts[name] = made
        report(_progress(name, rows[name], len(names)))
    training = [c for name in names[1:] for c in parts[name]]
    return DraftData(tuple(training), tuple(parts[HELD_OUT]), tuple(rows[n] for n in names))


def _make_round(
    teacher: Any, tokenizer: Any, recipe: DataRecipe, index: int, earlier: Sequence[Conversation]
) -> list[Conversation]:
    """Round ``index``; -1 is the held-out one."""
    if index < 0:
        prompts = held_out_prompts(recipe)
    else:
        texts = [tokenizer.decode(c.reply, skip_special_tokens=True) for c in earlier]
        prompts = round_prompts(recipe, index, earlier=texts)
    seed = recipe.seed * 100_003 + 2 * (index + 1)
    stops = [tokenizer.eos_token_id]
    ids = _prompt_ids(teacher, tokenizer, prompts, recipe, seed=seed, stops=stops)
    texts = write_texts(
        teacher, ids, new_tokens=recipe.reply_tokens, stops=stops, seed=seed + 1,
        temperatures=[p.temperature for p in prompts],
    )  # fmt: skip
    return [Conversation(p.kind, text) for p, text in zip(prompts, texts, strict=True)]


def _prompt_ids(
    teacher: Any, tokenizer: Any, prompts: Sequence[DraftPrompt], recipe: DataRecipe, *, seed: int,
    stops: list[int],
) -> list[list[int]]:  # fmt: skip
    """Prompts in chat format; turns to be invented are written by the teacher at temperature 1."""
    chats = [chat_ids(tokenizer, p.text or "") for p in prompts]
    empty = [i for i, p in enumerate(prompts) if p.text is None]
    if empty:
        whole = chat_ids(tokenizer, "")
        end = len(whole) - 1 - whole[::-1].index(stops[0])  # the user's turn ends here
        turns = write_texts(
            teacher, [whole[:end]] * len(empty), new_tokens=recipe.turn_tokens, stops=stops,
            temperatures=[1.0] * len(empty), seed=seed,
        )  # fmt: skip
        for i, turn in zip(empty, turns, strict=True):
            ids = turn.ids.tolist()
            chats[i] = ids[: -1 if ids[-1] == stops[0] else None] + whole[end:]
    return chats


def chat_ids(tokenizer: Any, text: str) -> list[int]:
    """One user message in the model's chat format, up to where the reply begins."""
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
    )
    return tokenizer(chat, add_special_tokens=False)["input_ids"]


def _save(folder: Path, name: str, made: Sequence[Conversation], *, seconds: float) -> Any:
    """Write one round's file whole, then its line of the journal; returns the line."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    partial, path = folder / f".{name}.partial", folder / f"{name}.safetensors"
    places = torch.tensor([[len(c.text.ids), c.text.first, c.text.reply_start] for c in made])
    tensors = {
        "ids": torch.cat([c.text.ids for c in made]).to(torch.int32),
        "places": places,
        "states": torch.cat([c.text.states for c in made]),
    }
    try:
        save_file(tensors, partial)
        partial.replace(path)
    except OSError as error:
        raise RecordError(f"{path} could not be written: {error.strerror or error}") from error
    row = {
        "name": name,
        "kinds": [c.kind for c in made],
        "tokens": len(tensors["ids"]),
        "reply_tokens": int((places[:, 0] - places[:, 2]).sum()),
        "digest": _digest(made),
        "seconds": round(seconds, 2),
    }
    append_row(folder / JOURNAL, row)
    return row


def _load(path: Path, row: dict[str, Any]) -> list[Conversation]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RecordError(f"{path} cannot be read: {error}. Remove {path.parent}.") from error
    made, at, state = [], 0, 0
    for kind, (length, first, start) in zip(row["kinds"], tensors["places"].tolist(), strict=True):
        ids = tensors["ids"][at : at + length].long()
        states = tensors["states"][state : state + length - 1 - first]
        made.append(Conversation(kind, Written(ids, states, first, start)))
        at, state = at + length, state + length - 1 - first
    if _digest(made) != row["digest"]:
        raise RecordError(f"{path} does not match its journal. Remove {path.parent}.")
    return made


def _digest(made: Sequence[Conversation]) -> str:
    return digest_of([[c.kind, c.text.reply_start, c.text.ids.tolist()] for c in made])


def _progress(name: str, row: dict[str, Any], total: int) -> str:
    speed = row["reply_tokens"] / max(row["seconds"], 1e-9)
    return (
        f"  {name} of {total - 1}: {row['reply_tokens']:,} reply tokens in {row['seconds']:.0f} s "
        f"({speed:.0f} tok/s)"
    )
