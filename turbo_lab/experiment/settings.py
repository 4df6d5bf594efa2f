"""The settings of a run as one flat mapping, and what differs between two runs.

Only what somebody chose counts: variables, the server's command line, its telling environment,
the configuration that it reports, packages and machine. Addresses, process ids, paths of logs and
numbers that the engine derives from its settings do not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from turbo_lab.records.schema import EngineFacts, Environment, Record

# Say where a server is or how it fared, not how it is set.
_VOLATILE = re.compile(
    r"(^|\.)(port|host|pid|log|log_file|uptime|start_time|started|load_s|root|model_path|"
    r"base_url|internal_states|instance_id|api_key|script|ports|\w*_ports?|\w*_ip|zmq\w*|"
    r"cache_dir|served_model_name)$"
)
# Derived by the engine from its settings and the memory it found.
DERIVED = re.compile(
    r"(^|\.)(num_gpu_blocks|num_cpu_blocks|kv_cache_tokens|kv_cache_max_concurrency|"
    r"cudagraph_capture_sizes|max_cudagraph_capture_size|max_total_num_tokens|"
    r"kv_cache_size_tokens)$"
)
# Flags whose value is the next word; a lone flag is True.
_FLAG = re.compile(r"^--?[A-Za-z]")
# Client-side settings that do not decide the numbers.
_NOT_COMPARED = frozenset({"primary_metric", "warmup", "timeout_s", "tokenizer", "model"})


def of_record(record: Record) -> dict[str, Any]:
    """All settings of one run, flat: ``dtype``, ``env.OMP_NUM_THREADS``, ``package.vllm`` ..."""
    out: dict[str, Any] = {
        name: value for name, value in record.variables.items() if name not in _NOT_COMPARED
    }
    for index, engine in enumerate(record.engines):
        prefix = "" if index == 0 else f"engine{index}."
        out |= {f"{prefix}{name}": value for name, value in of_engine(engine).items()}
    return out | of_environment(record.environment)


def of_engine(engine: EngineFacts) -> dict[str, Any]:
    """Settings of one server."""
    out: dict[str, Any] = {
        "engine": engine.name,
        "engine_version": engine.version,
        "served_model": engine.model,
        "model_sha256": engine.model_sha256,
    }
    out |= {f"flag.{k}": v for k, v in command_flags(engine.command or ()).items()}
    config = engine.effective_config
    if isinstance(config, Mapping):
        rest = dict(config)
        env = rest.pop("environment", None)
        rest.pop("command", None)
        root = rest.pop("root", None)
        out["model_folder"] = str(root).rstrip("/").rpartition("/")[2] if root else None
        out |= {f"env.{k}": v for k, v in (env or {}).items()} if isinstance(env, Mapping) else {}
        out |= {f"config.{k}": v for k, v in flatten(rest).items()}
    return {k: v for k, v in out.items() if not _VOLATILE.search(k) and not DERIVED.search(k)}


def of_environment(environment: Environment) -> dict[str, Any]:
    """Machine and packages."""
    out: dict[str, Any] = {
        "machine.cpu": environment.cpu,
        "machine.cores": environment.cores,
        "machine.memory_bytes": environment.memory_bytes,
        "machine.python": environment.python,
        "machine.system": environment.system,
        "machine.gpus": [f"{g.name}, driver {g.driver}" for g in environment.gpus],
    }
    out |= {f"package.{name}": version for name, version in environment.packages.items()}
    return out | {f"client_env.{name}": value for name, value in environment.threads.items()}


def command_flags(command: Sequence[str]) -> dict[str, Any]:
    """``--max-num-seqs 16 --dtype=bf16 --enforce-eager`` to names and values.

    ``--no-x`` is ``x`` False; a repeated flag collects its values.
    """
    out: dict[str, Any] = {}
    words = list(command)
    for index, word in enumerate(words):
        if not _FLAG.match(word):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        following = words[index + 1] if index + 1 < len(words) else "-"
        found: Any = value if equals else (True if _FLAG.match(following) else following)
        if following == "-" and not equals:
            found = True
        if name.startswith("no-") and found is True:
            name, found = name[3:], False
        key = name.replace("-", "_")
        out[key] = [*_as_list(out[key]), found] if key in out else found
    return out


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings to ``a.b.c`` keys; lists stay values."""
    out: dict[str, Any] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping):
            out |= flatten(item, f"{name}.")
        else:
            out[name] = item
    return out


def leaf(name: str) -> str:
    """The last part of a key in one spelling: ``config.model_config.dtype`` is ``dtype``."""
    return name.rpartition(".")[2].lstrip("-").replace("-", "_").lower()


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Keys whose values differ, with both values; a key that one side lacks counts as None."""
    return {
        key: (a.get(key), b.get(key))
        for key in sorted(a.keys() | b.keys())
        if a.get(key) != b.get(key)
    }
