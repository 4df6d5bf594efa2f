"""Train the draft: a few layers between the teacher's own embeddings and output head.

Every step follows from the recipe, the data and its number alone, and the state is saved at every
look at held-out text, so a killed run that goes on ends with the weights of an unbroken one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.records.journal import append_row
from turbo_lab.speculative.draft_data import Conversation, DraftData
from turbo_lab.speculative.draft_loss import (
    Targets,
    backward,
    batches_of,
    candidates,
    make_targets,
)  # fmt: skip
from turbo_lab.speculative.draft_recipe import TrainRecipe
from turbo_lab.speculative.draft_score import agreement, reply_hits

Report = Callable[[str], None]
SAMPLE_EVERY = 16  # places that tell which words are frequent
VECTOR_RATE = 0.05  # learning rate of the norms, as a share of the matrices'


def new_draft(teacher: Any, layers: Sequence[int]) -> Any:
    """A float32 model of these layers of the teacher; embeddings, head and final norm are its own.

    Embeddings and head are frozen. Raises UsageError for a layer that the teacher does not have.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    count = teacher.config.num_hidden_layers
    if any(not 0 <= i < count for i in layers):
        raise UsageError(f"layers are {tuple(layers)}; the teacher has 0 to {count - 1}")
    config = LlamaConfig(
        **{**teacher.config.to_dict(), "num_hidden_layers": len(layers), "dtype": "float32"}
    )
    draft = LlamaForCausalLM(config).float()
    draft.model.embed_tokens.load_state_dict(teacher.model.embed_tokens.state_dict())
    draft.model.norm.load_state_dict(teacher.model.norm.state_dict())
    for own, source in zip(draft.model.layers, layers, strict=True):
        own.load_state_dict(teacher.model.layers[source].state_dict())
    draft.tie_weights()
    draft.model.embed_tokens.weight.requires_grad_(False)
    draft.set_attn_implementation("sdpa")
    return draft.to(torch.float32).train()


def optimisers_of(trained: Sequence[Any], recipe: TrainRecipe) -> tuple[Any, Any]:
    """Muon for the matrices, AdamW for the norms.

    Muon (Jordan et al. 2024) steps along the nearest orthogonal matrix of the momentum. In a trial
    on equal text 113 of its steps did what 500 smaller ones of AdamW did in more time.
    """
    import torch

    matrices, vectors = ([p for p in trained if (p.ndim > 1) == wide] for wide in (True, False))
    muon = torch.optim.Muon(matrices, lr=0.0, momentum=0.95, weight_decay=recipe.weight_decay)
    return muon, torch.optim.AdamW(vectors, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)


def rate_at(step: int, *, steps: int, recipe: TrainRecipe) -> float:
    """Learning rate: linear warm-up, then half a cosine down to zero at ``steps``."""
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    done = (step - recipe.warmup_steps) / max(1, steps - recipe.warmup_steps)
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


@dataclass
class Trainer:
    """One training. ``folder`` keeps its state; ``key`` names recipe and data in it."""

    teacher: Any
    data: DraftData
    recipe: TrainRecipe
    folder: Path
    key: str
    report: Report = print
    step: int = 0
    best_step: int = -1
    best_share: float = -1.0
    best: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Build model, optimiser and targets, and take over a saved state."""
        import torch

        self.draft = new_draft(self.teacher, self.recipe.layers)
        self.trained = [p for p in self.draft.parameters() if p.requires_grad]
        self.optimisers = optimisers_of(self.trained, self.recipe)
        sample = torch.cat([c.text.states[::SAMPLE_EVERY] for c in self.data.training])
        self.targets: Targets = make_targets(self.draft.lm_head.weight, sample, self.recipe)
        self.choosing, _ = self.data.halves()
        self._resume()

    @property
    def path(self) -> Path:
        """File of the saved state."""
        return self.folder / f"train-{self.key}.pt"

    def plan(self) -> list[list[int]]:
        """The batches of all epochs, in order."""
        lengths = [len(c.text.ids) for c in self.data.training]
        size = self.recipe.batch_tokens
        return [
            batch
            for epoch in range(self.recipe.epochs)
            for batch in batches_of(lengths, batch_tokens=size, seed=f"{self.key}/{epoch}")
        ]

    def run(self, *, deadline_s: float | None = None, stop_after: int | None = None) -> None:
        """Train to the end, to ``stop_after`` steps, or until ``deadline_s`` (monotonic clock)."""
        batches = self.plan()
        last = min(len(batches), stop_after or len(batches))
        started, losses = time.monotonic(), []
        while self.step < last:
            batch = [self.data.training[i] for i in batches[self.step]]
            losses.append(self._update(batch, steps=len(batches)))
            self.step += 1
            late = deadline_s is not None and time.monotonic() > deadline_s
            if late or self.step == last or self.step % self.recipe.check_steps == 0:
                self.seconds += time.monotonic() - started
                self._check(sum(losses) / len(losses), len(batches))
                started, losses = time.monotonic(), []
            if late:
                self.report(f"  time is up at step {self.step}; the best state so far is kept")
                return

    def _update(self, batch: Sequence[Conversation], *, steps: int) -> float:
        import torch

        rate = rate_at(self.step, steps=steps, recipe=self.recipe)
        for optimiser, share in zip(self.optimisers, (1.0, VECTOR_RATE), strict=True):
            optimiser.param_groups[0]["lr"] = rate * share
            optimiser.zero_grad(set_to_none=True)
        ids, places, wanted, weights = collate(batch, prompt_weight=self.recipe.prompt)
        words = candidates(self.targets, ids, self.recipe, seed=self.step)
        with torch.autocast("cpu", torch.bfloat16):
            states = self.draft.model(ids).last_hidden_state.flatten(0, 1)[places]
            loss = backward(states, wanted, weights, words=words, targets=self.targets,
                            recipe=self.recipe)  # fmt: skip
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
        return loss

    def _check(self, loss: float, steps: int) -> None:
        """Measure on held-out text, remember the best weights, save everything."""
        began = time.monotonic()
        self.draft.eval()
        found = agreement(reply_hits(self.draft, self.choosing))
        self.draft.train()
        if found.share > self.best_share:
            self.best_share, self.best_step = found.share, self.step
            self.best = {k: v.clone() for k, v in own_weights(self.draft).items()}
        self.seconds += time.monotonic() - began
        self._save()
        append_row(self.folder / f"train-{self.key}.jsonl", {
            "step": self.step, "loss": round(loss, 4), "agreement": round(found.share, 4),
            "seconds": round(self.seconds, 1),
        })  # fmt: skip
        self.report(
            f"  step {self.step} of {steps}: loss {loss:.3f}, held-out agreement {found}, "
            f"{self.seconds:.0f} s"
        )

    def _save(self) -> None:
        import torch

        state = {
            "key": self.key, "step": self.step, "draft": own_weights(self.draft),
            "optimisers": [o.state_dict() for o in self.optimisers], "best": self.best,
            "best_step": self.best_step, "best_share": self.best_share, "seconds": self.seconds,
        }  # fmt: skip
        partial = self.path.with_suffix(".partial")
        try:
            torch.save(state, partial)
            partial.replace(self.path)
        except (OSError, RuntimeError) as error:
            raise RecordError(f"{self.path} could not be written: {error}") from error

    def _resume(self) -> None:
        import torch

        if not self.path.exists():
            return
        state = torch.load(self.path, weights_only=True)
        self.draft.load_state_dict(state["draft"], strict=False)
        for optimiser, kept in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(kept)
        for name in ("step", "best", "best_step", "best_share", "seconds"):
            setattr(self, name, state[name])
        self.report(f"  going on at step {self.step}")


def own_weights(draft: Any) -> dict[str, Any]:
    """The draft's own tensors: layers and final norm, without embeddings and head."""
    kept = {n: p for n, p in draft.state_dict().items() if n.startswith("model.")}
    return {n: p.detach() for n, p in kept.items() if "embed_tokens" not in n}


def collate(
    batch: Sequence[Conversation], *, prompt_weight: float
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """Padded ids [rows, length]; flat places with a target, their teacher states, their weights."""
    import torch

    ids = torch.nn.utils.rnn.pad_sequence([c.text.ids for c in batch], batch_first=True)
    places, weights = [], []
    for row, text in enumerate(c.text for c in batch):
        at = torch.arange(text.first, len(text.ids) - 1)
        places.append(row * ids.shape[1] + at)
        weights.append(torch.where(at + 1 < text.reply_start, prompt_weight, 1.0))
    states = torch.cat([c.text.states for c in batch])
    return ids, torch.cat(places), states, torch.cat(weights)
