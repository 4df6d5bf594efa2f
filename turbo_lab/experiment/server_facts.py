"""What a running server tells about itself, and what its process tells where it is local.

Every question is bounded in time; what a server does not tell is null, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turbo_lab.client.local_process import LocalProcess, listening_process
from turbo_lab.client.stream import Target
from turbo_lab.experiment import ask
from turbo_lab.records.schema import EngineFacts

_INFO_METRIC = re.compile(r"^(\w+:cache_config_info)\{(.*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# A llama.cpp /props answer holds these beside its settings.
_NOT_SETTINGS = frozenset({
    "chat_template", "chat_template_tool_use", "bos_token", "eos_token", "last_gen_throughput",
    "internal_states", "id_task", "is_processing", "prompt", "next_token",
})  # fmt: skip


@dataclass(frozen=True)
class Server:
    """One server before a run.

    ``engine`` goes into the record; ``process`` is None unless it runs here; ``started`` names
    this start of the server (by process creation time or its own metric), None when unknown.
    """

    engine: EngineFacts
    process: LocalProcess | None = None
    started: str | None = None
    models: tuple[str, ...] = ()
    folder: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


def read_server(target: Target, *, model: str | None = None) -> Server:
    """Ask the server who it is. Never raises for what the server does."""
    rows = _model_rows(ask.get_json(target, "/v1/models"))
    row = next((r for r in rows if r.get("id") == model), rows[0] if rows else {})
    config: dict[str, Any] = {}
    name = version = None
    if rows or ask.reachable(target):
        name, version, config = _identify(target)
    metrics = (ask.get(target, "/metrics") or b"").decode(errors="replace")
    config |= _from_metrics(metrics)
    for key in ("max_model_len", "root"):
        if row.get(key) is not None:
            config[key] = row[key]
    process = listening_process(target.base_url)
    engine = EngineFacts(
        name=name or _name_from_metrics(metrics) or "unknown",
        version=version,
        model=model or row.get("id"),
        model_sha256=None,
        command=process.command if process else None,
        effective_config={**config, "environment": process.environment} if process else config,
    )
    return Server(
        engine=engine,
        process=process,
        started=_started(process, metrics),
        models=tuple(str(r["id"]) for r in rows if r.get("id")),
        folder=str(row["root"]) if row.get("root") else None,
        config=config,
    )


def describe_server(server: Server) -> str:
    """Name, version and model in a few words."""
    facts = server.engine
    where = "on this machine" if server.process else "elsewhere"
    return f"{facts.name} {facts.version or '(version unknown)'}, model {facts.model}, {where}"


def _model_rows(answer: Any) -> list[dict[str, Any]]:
    rows = answer.get("data") if isinstance(answer, Mapping) else None
    return [r for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []


def _identify(target: Target) -> tuple[str | None, str | None, dict[str, Any]]:
    """Name, version and settings by the path that only one engine answers."""
    for path, read in _PROBES:
        answer = ask.get_json(target, path)
        if isinstance(answer, Mapping) and (found := read(answer)) is not None:
            name, version, config = found
            if name == "vllm":
                config |= _vllm_settings(target)
            return name, version, config
    return None, None, {}


Found = tuple[str, str | None, dict[str, Any]]


def _vllm(answer: Mapping[str, Any]) -> Found | None:
    version = answer.get("version")
    return ("vllm", str(version), {}) if isinstance(version, str) else None


def _sglang(answer: Mapping[str, Any]) -> Found | None:
    if "model_path" not in answer:
        return None
    return "sglang", _text(answer.get("version")), _settings(answer)


def _tgi(answer: Mapping[str, Any]) -> Found | None:
    if "model_id" not in answer or ("router" not in answer and "max_total_tokens" not in answer):
        return None
    return "text-generation-inference", _text(answer.get("version")), _settings(answer)


def _llama_cpp(answer: Mapping[str, Any]) -> Found | None:
    if "default_generation_settings" not in answer:
        return None
    return "llama.cpp", _text(answer.get("build_info")), _settings(answer)


_PROBES: tuple[tuple[str, Callable[[Mapping[str, Any]], Found | None]], ...] = (
    ("/version", _vllm),
    ("/get_server_info", _sglang),
    ("/info", _tgi),
    ("/props", _llama_cpp),
)


def _vllm_settings(target: Target) -> dict[str, Any]:
    """Only a server in development mode tells these."""
    answer = ask.get_json(target, "/server_info?config_format=json")
    inner = answer.get("vllm_config") if isinstance(answer, Mapping) else None
    return {"vllm_config": inner} if isinstance(inner, Mapping) else {}


def _settings(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer without what is no setting and without long texts."""
    return {
        key: value
        for key, value in answer.items()
        if key not in _NOT_SETTINGS and not (isinstance(value, str) and len(value) > 500)
    }


def _from_metrics(text: str) -> dict[str, Any]:
    match = _INFO_METRIC.search(text)
    return {"cache_config": dict(_LABEL.findall(match[2]))} if match else {}


def _name_from_metrics(text: str) -> str | None:
    for prefix, name in (("vllm:", "vllm"), ("sglang:", "sglang"), ("tgi_", "tgi"),
                         ("llamacpp:", "llama.cpp"), ("mock:", "mock")):  # fmt: skip
        if re.search(rf"^{prefix}", text, re.MULTILINE):
            return name
    return None


def _started(process: LocalProcess | None, metrics: str) -> str | None:
    if process is not None:
        return f"process {process.pid} {process.started:.2f}"
    match = re.search(r"^process_start_time_seconds\s+(\S+)", metrics, re.MULTILINE)
    return f"start time {match[1]}" if match else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
