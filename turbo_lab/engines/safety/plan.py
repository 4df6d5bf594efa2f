"""How a server is started, or is to be started: its flags and its environment, as data."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.args import VllmArgs

# Flags of vllm serve 0.32 that matter here. argparse takes any unambiguous beginning of a name.
FLAGS = (
    "host", "uds", "api-key", "ssl-certfile", "trust-remote-code", "enable-log-requests",
    "enable-log-outputs", "log-level", "load-format", "revision", "config", "model",
    "tool-parser-plugin", "reasoning-parser-plugin", "io-processor-plugin", "logits-processors",
    "middleware", "allowed-local-media-path", "trust-request-chat-template",
    "trust-request-mm-kwargs", "allowed-origins", "enable-tokenizer-info-endpoint",
    "profiler-config", "tool-server", "nnodes", "kv-transfer-config", "logging-config",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Flags by their long names (without dashes; a switch has the value ""), and environment."""

    flags: Mapping[str, str]
    env: Mapping[str, str]
    model: str | None = None
    words: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of_args(cls, args: VllmArgs) -> Plan:
        """What ``VllmServer`` would start: on loopback, unless a further flag says otherwise."""
        words = ("--host", "127.0.0.1", *args.flags())
        return cls(
            flags=flags_of(words),
            env={**os.environ, **args.environment()},
            model=args.model,
            words=words,
        )

    @classmethod
    def of_command(cls, command: Sequence[str], *, env: Mapping[str, str]) -> Plan | None:
        """What a command line starts; None when it is no ``vllm serve``."""
        if "serve" not in command:
            return None
        words = tuple(command[list(command).index("serve") + 1 :])
        flags = flags_of(words)
        model = words[0] if words and not words[0].startswith("-") else flags.get("model")
        return cls(flags=flags, env=env, model=model, words=words)

    @property
    def host(self) -> str:
        """Where it listens: an address, "" for all of them (vLLM's default), or a socket file."""
        if "uds" in self.flags:
            return f"unix:{self.flags['uds']}"
        return self.flags.get("host", "")

    @property
    def exposed(self) -> bool:
        """True when other machines can reach it."""
        return not is_loopback(self.host)

    @property
    def key(self) -> str | None:
        """The API key; None when none is asked for. An empty one is none, as vLLM reads it."""
        return self.flags.get("api-key", self.env.get("VLLM_API_KEY", "")).split(" ")[0] or None

    def switched_on(self, variable: str) -> bool:
        """True when an environment variable is set to 1 or true."""
        return self.env.get(variable, "").strip().lower() in ("1", "true", "yes", "on")


def is_loopback(host: str) -> bool:
    """True for loopback addresses, ``localhost`` and socket files; "" means all addresses."""
    if host == "localhost" or host.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def flags_of(words: Sequence[str]) -> dict[str, str]:
    """Flags of a command line as vLLM reads them: the last of equal ones counts.

    Underscores stand for dashes, ``--no-x`` takes ``--x`` back, and what a ``--config`` file says
    counts where the command line says nothing. Raises UsageError for a file that cannot be read.
    """
    out: dict[str, str] = {}
    name: str | None = None
    for word in words:
        if word.startswith("--"):
            text, found, value = word[2:].partition("=")
            name = _full(text.replace("_", "-"))
            if name.startswith("no-"):
                out.pop(name[3:], None)
                name = None
            else:
                out[name] = value
                name = None if found else name
        elif name is not None:
            out[name] = f"{out[name]} {word}".strip()
    return {**_of_file(out["config"]), **out} if out.get("config") else out


def _full(name: str) -> str:
    if name in FLAGS or name.startswith("no-"):
        return name
    begun = [flag for flag in FLAGS if flag.startswith(name)]
    return begun[0] if len(begun) == 1 and len(name) > 2 else name


def _of_file(path: str) -> dict[str, str]:
    import yaml

    try:
        rows: Any = yaml.safe_load(Path(path).expanduser().read_text()) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"--config {path} cannot be read: {error}") from error
    if not isinstance(rows, dict):
        raise UsageError(f"--config {path} holds no settings (name: value)")
    out = {}
    for name, value in rows.items():
        if value is not False and value is not None:
            text = "" if value is True else value
            words = text if isinstance(text, list) else [text]
            out[_full(str(name).replace("_", "-"))] = " ".join(map(str, words))
    return out
