"""From weights to one small file, and from that to a folder that loads like any model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the cpu environment")
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from turbo_lab.core.errors import EngineError, RecordError, UsageError
from turbo_lab.speculative.draft import assemble_draft, open_pack
from turbo_lab.speculative.draft_assemble import MARKER
from turbo_lab.speculative.draft_build import build_draft
from turbo_lab.speculative.draft_pack import RECIPE, WEIGHTS, embeddings_sha256, write_pack
from turbo_lab.speculative.draft_train import new_draft, own_weights

SILENT: dict[str, Any] = {"report": lambda _: None}


@pytest.fixture(scope="module")
def once(load: Any, recipe: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny draft from the whole build."""
    home = tmp_path_factory.mktemp("draft")
    build_draft(recipe, home / "pack", teacher=load(), folder=home / "work", **SILENT)
    return home / "pack"


@pytest.fixture
def built(once: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(once, tmp_path / "pack"))


def assembled(built: Path, teacher: Any, tmp_path: Path) -> Path:
    return assemble_draft(built, teacher=teacher.folder, target=tmp_path / "draft", **SILENT)


def test_build_writes_what_its_recipe_says(built: Path, recipe: Any) -> None:
    packed = open_pack(built)
    facts = packed.recipe
    assert facts["weights"]["bytes"] == packed.weights.stat().st_size
    assert facts["recipe"]["data"]["seed"] == recipe.data.seed
    assert set(facts["agreement"]) == {"all", "copy", "edit", "prose", "chat"}
    assert facts["agreement"]["all"]["low"] <= packed.share <= facts["agreement"]["all"]["high"]
    assert facts["data"]["digest"].startswith("sha256:") and len(facts["minutes"]) == 3
    assert sorted(p.name for p in built.iterdir()) == [WEIGHTS, RECIPE]


def test_a_second_build_writes_the_same_file(
    built: Path, teacher: Any, recipe: Any, tmp_path: Path
) -> None:
    anew = build_draft(
        recipe, tmp_path / "again", teacher=teacher, folder=tmp_path / "other", **SILENT
    )
    assert anew.digest == open_pack(built).digest


def test_assembled_folder_is_the_trained_draft(built: Path, teacher: Any, tmp_path: Path) -> None:
    folder = assembled(built, teacher, tmp_path)
    draft = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert draft.config.num_hidden_layers == 2
    weights = teacher.model.model.embed_tokens.weight
    assert torch.equal(draft.lm_head.weight, weights.float())
    stored = load_file(built / WEIGHTS)
    for name, tensor in own_weights(draft).items():
        assert torch.equal(tensor.to(torch.bfloat16), stored[name]), name
    assert (folder / "tokenizer.json").samefile(teacher.folder / "tokenizer.json")


def test_assembled_folder_is_reused_until_it_is_damaged(
    built: Path, teacher: Any, tmp_path: Path
) -> None:
    said: list[str] = []
    asked: dict[str, Any] = {"teacher": teacher.folder, "target": tmp_path / "draft",
                             "report": said.append}  # fmt: skip
    folder = assemble_draft(built, **asked)
    assemble_draft(built, **asked)
    assert len(said) == 1
    (folder / "model.safetensors").write_bytes(b"cut off")
    assemble_draft(built, **asked)
    (folder / MARKER).unlink()
    assemble_draft(built, **asked)
    (folder / "config.json").unlink()
    assemble_draft(built, **asked)
    assert len(said) == 4 and json.loads((folder / "config.json").read_text())
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []


def test_another_teacher_is_refused(built: Path, teacher: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(teacher.folder, other)
    tensors = load_file(other / "model.safetensors")
    tensors["model.embed_tokens.weight"][3, 4] += 1
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=r"belongs to tiny.*other has sha256.*build"):
        assemble_draft(built, teacher=other, target=tmp_path / "draft", **SILENT)
    with pytest.raises(UsageError, match="has no model.safetensors"):
        assemble_draft(built, teacher=tmp_path, target=tmp_path / "draft", **SILENT)
    assert not (tmp_path / "draft").exists()


def test_teachers_digest_looks_at_the_embeddings_alone(teacher: Any, tmp_path: Path) -> None:
    tensors = load_file(teacher.folder / "model.safetensors")
    tensors["model.norm.weight"] += 1
    save_file(tensors, tmp_path / "model.safetensors", {"note": "another header"})
    assert embeddings_sha256(tmp_path) == teacher.digest
    with pytest.raises(RecordError, match=r"no readable model\.embed_tokens"):
        embeddings_sha256(tmp_path / "absent")


def test_changed_files_are_refused(built: Path) -> None:
    weights = bytearray((built / WEIGHTS).read_bytes())
    weights[-1] ^= 1
    (built / WEIGHTS).write_bytes(weights)
    with pytest.raises(RecordError, match="is not the file that recipe.json describes"):
        open_pack(built)
    (built / RECIPE).write_text('{"teacher": {}}')
    with pytest.raises(RecordError, match="has no recipe, data"):
        open_pack(built)
    (built / RECIPE).unlink()
    with pytest.raises(RecordError, match=r"cannot be read.*speculative build"):
        open_pack(built)


def test_too_large_a_draft_is_refused_and_the_old_one_stays(built: Path, teacher: Any) -> None:
    packed = open_pack(built)
    before = packed.weights.read_bytes()
    tensors = own_weights(new_draft(teacher.model, (0, 1, 2)))
    with pytest.raises(UsageError, match=r"takes [\d,]+ bytes, at most 1,000 .* fewer layers"):
        write_pack(tensors, packed.recipe, built, max_bytes=1000)
    assert packed.weights.read_bytes() == before and open_pack(built).digest == packed.digest


def test_unwritable_place_says_what_to_do(built: Path, teacher: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot write the draft.*TURBO_LAB_CACHE"):
        assemble_draft(built, teacher=teacher.folder, target=tmp_path / "file" / "draft", **SILENT)
