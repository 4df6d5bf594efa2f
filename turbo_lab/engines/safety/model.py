"""Rows about a model's files: where they come from, what they are, and who may change them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.core.host import short_path
from turbo_lab.engines import local_model
from turbo_lab.engines.safety.flags import PLUGINS
from turbo_lab.engines.safety.plan import Plan
from turbo_lab.engines.safety.row import Check, row

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
PICKLE_LOADERS = ("pt", "npcache")  # formats of vLLM 0.32 that read them
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")
MANIFEST = "SHA256SUMS"
LONGEST_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
IDS = ("model_source", "model_checksum", "safetensors_only", "no_remote_code",
       "weights_read_only")  # fmt: skip


def files_of(model: str) -> Path:
    """The folder with the model's files. Raises UnmeasuredError when they are not on this machine.

    ``model``: a folder or a Hugging Face id.
    """
    if Path(model).expanduser().is_dir():
        return Path(model).expanduser()
    if model == str(local_model.model_folder()):
        raise UnmeasuredError("the bundled model is not prepared yet; turbo-lab serve does that")
    try:
        return local_model.snapshot_folder(model)
    except (ImportError, ValueError) as error:
        raise UnmeasuredError(f"the files of {model} were not found: {error}") from error


def model_rows(plan: Plan, *, manifest: Path | None = None, uid: int | None) -> list[Check]:
    """All rows about the model of a plan.

    ``manifest``: checksums as ``sha256sum`` writes them (default: SHA256SUMS beside the weights).
    ``uid``: the user the server runs as; None when that is not known.
    """
    code = _code_by_flags(plan)
    try:
        folder = files_of(plan.model or "")
    except UnmeasuredError as error:
        rows = {name: row(name, "unknown", str(error)) for name in IDS}
        rows["model_source"] = _hub_id(plan) or rows["model_source"]
        rows["no_remote_code"] = code or rows["no_remote_code"]
        return list(rows.values())
    return [
        _source(plan, folder),
        checksum_row(folder, manifest=manifest),
        _safetensors(plan, folder),
        code or _code_in(folder),
        _writable(folder, uid),
    ]


def _hub_id(plan: Plan) -> Check | None:
    model, revision = plan.model or "", plan.flags.get("revision", "")
    if model.count("/") != 1 or model.startswith((".", "/", "~")):
        return None
    if COMMIT.fullmatch(revision):
        return row("model_source", "ok", f"{model} at commit {revision}")
    said = f"--revision {revision}" if revision else "no --revision"
    return row("model_source", "warn", f"{model} with {said}: the files may change any day")


def _source(plan: Plan, folder: Path) -> Check:
    marker = _marker(folder)
    if marker:
        gguf = str(marker.get("gguf_sha256", ""))
        known = gguf == local_model.GGUF_SHA256
        said = f"{'the known' if known else 'an unknown'} file, sha256 {gguf[:12]}..."
        return row("model_source", "ok" if known else "fail", f"{marker.get('source')}: {said}")
    commit = next((part for part in folder.resolve().parts[::-1] if COMMIT.fullmatch(part)), None)
    if commit:
        return row("model_source", "ok", f"a snapshot of the hub at commit {commit}")
    told = _hub_id(plan)
    return told or row("model_source", "warn", f"nothing tells where {short_path(folder)} is from")


def _marker(folder: Path) -> Mapping[str, str]:
    """What the bundled model's preparation wrote down; empty for any other folder."""
    return _json(folder / local_model.MARKER)


def _json(path: Path) -> dict[str, str]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def checksum_row(folder: Path, *, manifest: Path | None = None) -> Check:
    """Weights against their known checksums: a manifest, the bundled model's, or the hub's names.

    Reads every weight file that has a known checksum (0.3 GB per second and more).
    """
    weights = sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".gguf"))
    known, where = _known(folder, weights, manifest)
    if not known:
        return row("model_checksum", "unknown", "no checksum of these files is known here")
    wrong = [name for name, digest in known.items() if not _is(folder / name, digest)]
    if wrong:
        return row("model_checksum", "fail", f"{', '.join(wrong)}: not the file in {where}")
    left = [path.name for path in weights if path.name not in known]
    if left:
        return row("model_checksum", "warn", f"{where} does not list {', '.join(left)}")
    return row("model_checksum", "ok", f"sha256 of {', '.join(known)} as in {where}")


def _known(folder: Path, weights: list[Path], manifest: Path | None) -> tuple[dict[str, str], str]:
    """(name to digest, where that stands)."""
    beside = folder / MANIFEST
    if manifest is not None or beside.is_file():
        return read_manifest(manifest or beside), (manifest or beside).name
    digest = _marker(folder).get("weights_sha256")
    if digest:
        return {"model.safetensors": digest}, f"{local_model.MARKER} (written when prepared)"
    blobs = {path.name: path.resolve().name for path in weights if path.is_symlink()}
    named = {name: blob for name, blob in blobs.items() if SHA256.fullmatch(blob)}
    return named, "the hub's own file names"


def read_manifest(path: Path) -> dict[str, str]:
    """Name to digest, from lines as ``sha256sum`` writes them. Raises UsageError for any other."""
    out = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--manifest {path} cannot be read: {error}") from error
    for number, line in enumerate(filter(str.strip, lines), 1):
        digest, _, name = line.strip().partition(" ")
        name = name.strip().removeprefix("*").removeprefix("./")
        if not SHA256.fullmatch(digest.lower()) or not name:
            raise UsageError(f"{path.name}, line {number}: not 'SHA256  FILE' as sha256sum writes")
        out[name] = digest.lower()
    if not out:
        raise UsageError(f"{path.name} lists no file; make it with sha256sum *.safetensors")
    return out


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and local_model.file_sha256(path) == digest


def _safetensors(plan: Plan, folder: Path) -> Check:
    pickles = [path.name for path in _all_files(folder) if path.suffix.lower() in PICKLES]
    weights = sorted(folder.glob("*.safetensors"))
    loader = plan.flags.get("load-format", "auto")
    broken = [path.name for path in weights if not has_header(path)]
    if broken:
        return row("safetensors_only", "fail", f"no safetensors inside: {', '.join(broken)}")
    if loader in PICKLE_LOADERS or (pickles and not weights):
        what = ", ".join(pickles) or f"--load-format {loader}"
        return row("safetensors_only", "fail", f"pickle files would be loaded: {what}")
    if pickles:
        return row("safetensors_only", "warn", f"beside the safetensors lie {', '.join(pickles)}")
    if not weights and not list(folder.glob("*.gguf")):
        return row("safetensors_only", "unknown", "the folder holds no weights")
    names = ", ".join(path.name for path in weights) or "GGUF, no safetensors"
    return row("safetensors_only", "ok", f"{names}; no pickle files")


def has_header(path: Path) -> bool:
    """True when a file begins as the safetensors format says: a length, then a JSON object."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= LONGEST_HEADER_BYTES:
                return False
            return isinstance(json.loads(stream.read(length)), dict)
    except (OSError, ValueError):
        return False


def _all_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _code_by_flags(plan: Plan) -> Check | None:
    if "trust-remote-code" in plan.flags:
        return row("no_remote_code", "fail", "--trust-remote-code is given")
    given = [f"--{name}" for name in PLUGINS if name in plan.flags]
    return row("no_remote_code", "warn", f"{', '.join(given)} load code") if given else None


def _code_in(folder: Path) -> Check:
    found = [path.name for path in _all_files(folder) if path.suffix == ".py"]
    found += [
        f"auto_map in {path.name}" for path in sorted(folder.glob("*.json"))
        if "auto_map" in _json(path)
    ]  # fmt: skip
    if found:
        return row("no_remote_code", "warn", f"the model brings code: {', '.join(found)}")
    return row("no_remote_code", "ok", "the folder holds no code, and no flag loads any")


def _writable(folder: Path, uid: int | None) -> Check:
    files = [folder, *_all_files(folder)]
    anyone = [path.name for path in files if path.stat().st_mode & 0o002]
    if anyone:
        return row("weights_read_only", "fail", f"everybody may write {', '.join(anyone)}")
    if uid is None:
        return row("weights_read_only", "unknown", "the user of the server is not known")
    if uid == 0:
        return row("weights_read_only", "warn", "the server runs as root, which may write all")
    own = [path.name for path in files if path.stat().st_uid == uid]
    if own:
        return row("weights_read_only", "warn", f"the server's user owns {own[0]} and may write it")
    return row("weights_read_only", "ok", "the files belong to another user, who alone may write")
