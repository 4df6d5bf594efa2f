"""The teacher's texts: equal to plain decoding, the same from the same seed, never lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the cpu environment")

from turbo_lab.core.errors import RecordError
from turbo_lab.speculative.draft_data import HELD_OUT, JOURNAL, chat_ids, make_data
from turbo_lab.speculative.draft_recipe import DataRecipe
from turbo_lab.speculative.draft_sample import common_start, write_texts
from turbo_lab.speculative.prompts import CLASSES

SILENT: dict[str, Any] = {"report": lambda _: None}


def plain_greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    """Decode without any cache."""
    import torch

    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            logits = model(torch.tensor([ids])).logits[0, -1]
            ids.append(int(logits.argmax()))
            if ids[-1] == 2:
                break
    return ids


def test_batched_text_is_what_the_model_writes_alone(teacher: Any) -> None:
    import torch

    model = teacher.model.float()
    model.set_attn_implementation("eager")
    prompts = [[5, 6, 7], [5, 6, 9, 10, 11, 40], [5, 6, 8, 8], [5, 6, 30]]
    alone = [plain_greedy(model, p, 12) for p in prompts]
    with torch.inference_mode():
        states = [model.model(torch.tensor([ids])).last_hidden_state[0] for ids in alone]
    texts = write_texts(model, prompts, new_tokens=12, temperatures=[0.0] * 4, stops=[2], seed=0)
    assert [t.ids.tolist() for t in texts] == alone
    for text, prompt, state in zip(texts, prompts, states, strict=True):
        assert (text.first, text.reply_start) == (2, len(prompt))
        torch.testing.assert_close(text.states, state[2:-1], atol=1e-4, rtol=1e-4)


def test_rows_that_end_early_are_left_alone(teacher: Any) -> None:
    """Every token that one row writes is made a stop of all: rows end at different steps."""
    model = teacher.model.float()
    prompts = [[5, 6, 7], [5, 9, 10], [5, 8, 8, 1], [5, 30], [5, 31]]
    free = write_texts(model, prompts, new_tokens=10, temperatures=[0.0] * 5, stops=[], seed=0)
    stops = [int(free[0].ids[-1]), int(free[2].ids[6])]
    cut = write_texts(model, prompts, new_tokens=10, temperatures=[0.0] * 5, stops=stops, seed=0)
    for whole, text in zip(free, cut, strict=True):
        reply = whole.ids[whole.reply_start :].tolist()
        end = next((i + 1 for i, token in enumerate(reply) if token in stops), len(reply))
        assert text.ids.tolist() == whole.ids[: whole.reply_start + end].tolist()
        assert len(text.states) == len(text.ids) - 1 - text.first


def test_temperature_is_seeded_and_stays_among_the_best(teacher: Any) -> None:
    prompts = [[5, 6, 7]] * 8
    asked = {"new_tokens": 6, "temperatures": [1.5] * 8, "stops": [2]}
    one, same, other = (
        [t.ids.tolist() for t in write_texts(teacher.model, prompts, seed=s, **asked)]
        for s in (1, 1, 2)
    )
    assert one == same != other and len(set(map(tuple, one))) > 1


def test_common_start_leaves_a_token_to_each_prompt() -> None:
    assert common_start([[1, 2, 3], [1, 2, 3]]) == 2
    assert common_start([[1, 2, 3], [1, 4]]) == 1
    assert common_start([[7]]) == 0


def test_same_seed_same_digest(teacher: Any, recipe: Any, tmp_path: Path) -> None:
    made = [
        make_data(teacher.model, teacher.tokenizer, r, tmp_path / name, **SILENT)
        for name, r in (("a", recipe.data), ("b", recipe.data), ("c", DataRecipe(
            **{**vars(recipe.data), "seed": 1})))
    ]  # fmt: skip
    assert made[0].digest == made[1].digest != made[2].digest
    assert len(made[0].training) == 12 and len(made[0].held_out) == 8
    choosing, measuring = made[0].halves()
    assert [c.kind for c in choosing] == [c.kind for c in measuring] == list(CLASSES)
    assert made[0].tokens == sum(row["tokens"] for row in made[0].rows if row["name"] != HELD_OUT)


def test_killed_run_goes_on_with_the_same_texts(teacher: Any, recipe: Any, tmp_path: Path) -> None:
    whole = make_data(teacher.model, teacher.tokenizer, recipe.data, tmp_path / "a", **SILENT)
    calls = []

    def kill(line: str) -> None:
        calls.append(line)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_data(teacher.model, teacher.tokenizer, recipe.data, tmp_path / "b", report=kill)
    journal = tmp_path / "b" / JOURNAL
    assert len(journal.read_text().splitlines()) == 2
    journal.write_text(journal.read_text() + '{"name": "round-0')  # cut off in the middle
    rest: list[str] = []
    again = make_data(
        teacher.model, teacher.tokenizer, recipe.data, tmp_path / "b", report=rest.append
    )
    assert again.digest == whole.digest and len(rest) == 1


def test_changed_data_is_refused(teacher: Any, recipe: Any, tmp_path: Path) -> None:
    make_data(teacher.model, teacher.tokenizer, recipe.data, tmp_path, **SILENT)
    path = tmp_path / "round-001.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RecordError, match="round-001.*cannot be read"):
        make_data(teacher.model, teacher.tokenizer, recipe.data, tmp_path, **SILENT)
    path.write_bytes((tmp_path / "round-000.safetensors").read_bytes())
    with pytest.raises((RecordError, ValueError), match="does not match its journal|argument"):
        make_data(teacher.model, teacher.tokenizer, recipe.data, tmp_path, **SILENT)


def test_chat_ids_end_where_the_reply_begins(teacher: Any) -> None:
    ids = chat_ids(teacher.tokenizer, "ab")
    assert ids[-3:] == teacher.tokenizer("me:")["input_ids"] and ids.count(2) == 1
