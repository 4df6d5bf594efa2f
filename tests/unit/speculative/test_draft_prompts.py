"""What the teacher is asked: nothing that is measured is trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.speculative.draft_prompts import held_out_prompts, load_lists, round_prompts
from turbo_lab.speculative.draft_recipe import (
    DataRecipe,
    DraftRecipe,
    TrainRecipe,
    data_key,
    train_key,
)
from turbo_lab.speculative.prompts import CLASSES, class_prompts


def test_held_out_prompts_share_no_subject_with_training() -> None:
    ours, theirs = load_lists(held_out=True), load_lists(held_out=False)
    for name in ("topics", "code_tasks", "nouns", "people"):
        assert ours[name] and theirs[name] and not set(ours[name]) & set(theirs[name])
    recipe = DataRecipe()
    trained = {p.text for i in range(recipe.rounds) for p in round_prompts(recipe, i)}
    held = [p.text for p in held_out_prompts(recipe)]
    assert not trained & set(held) and all(p.temperature == 0 for p in held_out_prompts(recipe))
    live = {p.text for p in class_prompts()}
    assert not live & (trained | set(held))


def test_round_prompts_keep_their_shares_and_use_earlier_replies() -> None:
    recipe = DataRecipe(rows=128)
    prompts = round_prompts(recipe, 3, earlier=["A tale of a whale " * 9 + "in a quiet bay."])
    assert len(prompts) == 128 and {p.kind for p in prompts} == set(CLASSES)
    assert sum(p.text is None for p in prompts) == 38
    assert any("whale" in (p.text or "") for p in prompts)
    assert prompts != round_prompts(recipe, 4)


@pytest.mark.parametrize("name", ["rounds", "rows", "reply_tokens", "held_out"])
def test_recipe_refuses_empty_sizes(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is 0"):
        DataRecipe(**{name: 0})


def test_recipe_names_are_checked() -> None:
    with pytest.raises(UsageError, match="no 'epoch'.*'epochs'"):
        DraftRecipe.make(epoch=3)
    with pytest.raises(UsageError, match="rising order"):
        DraftRecipe.make(layers=[3, 1])
    made = DraftRecipe.make(seed=4, epochs=2)
    assert made.data.seed == 4 and made.train.epochs == 2
    again = DraftRecipe.make(**made.as_dict()["data"], **made.as_dict()["train"])
    assert again == made


def test_keys_name_data_and_training_apart() -> None:
    data, train = DataRecipe(), TrainRecipe()
    keys = {
        data_key(replace(data, seed=seed), teacher=teacher, prompts=prompts)
        for seed in (0, 1) for teacher in "ab" for prompts in "pq"
    }  # fmt: skip
    assert len(keys) == 8 and data_key(data, teacher="a", prompts="p") in keys
    assert train_key(train, data="d") != train_key(replace(train, epochs=6), data="d")


def test_unreadable_list_of_prompts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent.toml cannot be read"):
        load_lists(held_out=True, path=tmp_path / "absent.toml")
