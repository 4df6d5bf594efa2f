"""Training: it learns, repeats itself exactly, and a killed run ends with the same weights."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the cpu environment")
import torch

from turbo_lab.core.errors import UsageError
from turbo_lab.speculative.draft_data import DraftData, make_data
from turbo_lab.speculative.draft_loss import (
    Targets,
    backward,
    batches_of,
    candidates,
    make_targets,
)
from turbo_lab.speculative.draft_recipe import TrainRecipe
from turbo_lab.speculative.draft_train import Trainer, collate, new_draft, own_weights, rate_at

SILENT: dict[str, Any] = {"report": lambda _: None}


@pytest.fixture(scope="module")
def data(load: Any, recipe: Any, tmp_path_factory: pytest.TempPathFactory) -> DraftData:
    teacher, folder = load(), tmp_path_factory.mktemp("data")
    return make_data(teacher.model, teacher.tokenizer, recipe.data, folder, **SILENT)


def trained(
    teacher: Any, data: DraftData, recipe: TrainRecipe, folder: Path, **how: Any
) -> Trainer:
    folder.mkdir(exist_ok=True)
    trainer = Trainer(teacher.model, data, recipe, folder, "k", **SILENT)
    trainer.run(**how)
    return trainer


def test_draft_starts_as_the_teachers_layers(teacher: Any) -> None:
    draft = new_draft(teacher.model, (0, 3))
    assert draft.lm_head.weight is draft.model.embed_tokens.weight
    assert not draft.lm_head.weight.requires_grad
    source = teacher.model.model.layers[3].mlp.up_proj.weight
    assert torch.equal(draft.model.layers[1].mlp.up_proj.weight, source.float())
    assert all("embed" not in n and "head" not in n for n in own_weights(draft))
    with pytest.raises(UsageError, match="teacher has 0 to 3"):
        new_draft(teacher.model, (0, 4))


def test_a_draft_of_all_layers_already_agrees(teacher: Any, data: DraftData) -> None:
    """Loss 0 and full agreement: the draft is the teacher."""
    from turbo_lab.speculative.draft_score import agreement, reply_hits

    draft = new_draft(teacher.model, (0, 1, 2, 3)).eval()
    assert agreement(reply_hits(draft, data.held_out)).share > 0.9


def test_resumed_training_equals_an_unbroken_one(
    teacher: Any, data: DraftData, recipe: Any, tmp_path: Path
) -> None:
    whole = trained(teacher, data, recipe.train, tmp_path / "a")
    assert whole.step == len(whole.plan()) > 4
    trained(teacher, data, recipe.train, tmp_path / "b", stop_after=4)
    rest = trained(teacher, data, recipe.train, tmp_path / "b")
    assert (rest.step, rest.best_step) == (whole.step, whole.best_step)
    for name, tensor in own_weights(whole.draft).items():
        assert torch.equal(tensor, own_weights(rest.draft)[name]), name
        assert torch.equal(whole.best[name], rest.best[name])


def test_training_lowers_the_loss(
    teacher: Any, data: DraftData, recipe: Any, tmp_path: Path
) -> None:
    """Towards its floor, the teacher's own entropy."""
    long = replace(recipe.train, epochs=12, check_steps=1000, learning_rate=0.02, hard=0.0)
    trainer = Trainer(teacher.model, data, long, tmp_path, "k", **SILENT)
    batch = list(data.training)
    ids, _, wanted, weights = collate(batch, prompt_weight=long.prompt)
    words = candidates(trainer.targets, ids, long, seed=0)
    floor = backward(wanted.float().requires_grad_(), wanted, weights, words=words,
                     targets=trainer.targets, recipe=long)  # fmt: skip
    first = trainer._update(batch, steps=60)
    trainer.run()
    assert floor < trainer._update(batch, steps=60) < floor + 0.5 * (first - floor)


def test_a_deadline_keeps_the_best_state(
    teacher: Any, data: DraftData, recipe: Any, tmp_path: Path
) -> None:
    trainer = trained(teacher, data, recipe.train, tmp_path, deadline_s=0.0)
    assert trainer.step == 1 and trainer.best and trainer.path.exists()


def loss_of(draft: Any, wanted: Any, words: Any, head: Any, recipe: TrainRecipe) -> float:
    targets: Targets = make_targets(head, wanted, recipe)
    ones = torch.ones(len(draft))
    return backward(draft, wanted, ones, words=words, targets=targets, recipe=recipe)


def test_loss_is_kl_over_the_words_and_logit_error_over_all() -> None:
    torch.manual_seed(0)
    head = torch.randn(50, 16).to(torch.bfloat16).float()
    draft, wanted = (torch.randn(600, 16).to(torch.bfloat16).float() for _ in range(2))
    words = torch.arange(0, 50, 2)
    draft.requires_grad_()
    soft = TrainRecipe(hard=0.0, logit=0.0)
    target, own = ((x @ head[words].T).log_softmax(-1) for x in (wanted, draft))
    cross = -(target.exp() * own).sum(-1).mean()
    plain = float(cross.detach())
    assert loss_of(draft, wanted, words, head, soft) == pytest.approx(plain, rel=0.02)
    ours, draft.grad = draft.grad, None
    cross.backward()
    torch.testing.assert_close(ours, draft.grad, rtol=0.05, atol=2e-4)
    error = (draft - wanted) @ head.T
    whole = loss_of(draft, wanted, words, head, TrainRecipe(hard=0.0, logit=1.0))
    wide = float(error.detach().var(-1, correction=0).mean())
    assert whole - plain == pytest.approx(wide, rel=0.02)
    best = (wanted @ head[words].T).argmax(-1)
    hard = loss_of(draft, wanted, words, head, TrainRecipe(hard=1.0, logit=0.0)) - float(
        cross.detach()
    )
    assert hard == pytest.approx(-float(own.detach().gather(1, best[:, None]).mean()), rel=0.02)


def test_places_meet_their_teacher_states(data: DraftData) -> None:
    batch = list(data.training[:3])
    ids, places, states, weights = collate(batch, prompt_weight=0.25)
    assert len(places) == len(states) == len(weights)
    at = 0
    for row, text in enumerate(c.text for c in batch):
        for i in range(text.first, len(text.ids) - 1):
            assert places[at] == row * ids.shape[1] + i
            assert weights[at] == (1.0 if i + 1 >= text.reply_start else 0.25)
            assert torch.equal(states[at], text.states[i - text.first])
            at += 1


def test_batches_hold_everything_once_within_their_size() -> None:
    lengths = [5 + i % 37 for i in range(300)]
    batches = batches_of(lengths, batch_tokens=200, seed="x", window=64)
    assert sorted(i for batch in batches for i in batch) == list(range(300))
    assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= 200 for b in batches)
    assert batches == batches_of(lengths, batch_tokens=200, seed="x", window=64)
    assert batches != batches_of(lengths, batch_tokens=200, seed="y", window=64)


def test_candidates_hold_the_batch_and_the_frequent() -> None:
    recipe = TrainRecipe(frequent=4, random=3)
    states = torch.eye(60)[[9] * 5 + [7] * 4 + [3, 3, 2]] * 9  # each place is sure of one word
    targets = make_targets(torch.eye(60), states, recipe)
    assert targets.frequent.tolist() == [9, 7, 3, 2]
    words = candidates(targets, torch.tensor([[50, 51]]), recipe, seed=0).tolist()
    assert {9, 7, 3, 2, 50, 51} <= set(words) and len(words) == len(set(words)) <= 9


def test_rate_rises_and_falls() -> None:
    recipe = TrainRecipe(learning_rate=1.0, warmup_steps=4)
    rates = [rate_at(i, steps=20, recipe=recipe) for i in range(21)]
    assert rates[0] == 0.25 and rates[4] == 1.0 and rates[20] == pytest.approx(0)
    assert all(a > b for a, b in pairwise(rates[4:]))
