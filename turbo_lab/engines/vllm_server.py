"""A real ``vllm serve`` process."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import EngineError, UsageError
from turbo_lab.engines import vllm_cli
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.base import GuardedProcess, free_port, http_get, require_free_port
from turbo_lab.engines.managed import ManagedServer
from turbo_lab.engines.metrics_page import sum_over_labels

KV_TOKENS_LINE = re.compile(r"(?:GPU|CPU) KV cache size: ([\d,]+) tokens")


def check_model_folder(model: str) -> None:
    """Raise UsageError for a local folder that vLLM could not load; ids of a hub pass unchecked."""
    looks_local = model.startswith(("/", ".", "~")) or Path(model).exists()
    if not looks_local:
        return
    folder = host.user_path(model)
    if not folder.is_dir():
        raise UsageError(
            f"model folder {model} does not exist. Give a folder with config.json, a "
            "Hugging Face id, or leave it out for the bundled model."
        )
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"model folder {model} has no config.json, so it is not a model in Hugging Face format."
        )


class VllmServer(ManagedServer):
    """One server. Use it as a context manager, or call ``stop``; either way nothing is left behind.

    ``folder`` keeps log, status and leases (default: a new one in the cache). ``port``: loopback
    port, a free one by default. ``leases`` and ``grace_s`` belong to the pool.
    """

    what = "vllm serve"

    def __init__(
        self,
        args: VllmArgs,
        *,
        folder: Path | None = None,
        port: int | None = None,
        leases: tuple[Path, ...] = (),
        grace_s: float = 0.0,
    ) -> None:
        vllm_cli.vllm_version()  # raises the install line where vLLM is missing
        check_model_folder(args.model)
        if args.extra:
            vllm_cli.check_flags([flag for flag, _ in args.extra])
        self.args = args
        self.port = require_free_port(port) if port else free_port()
        self.load_s: float | None = None
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{args.digest()}-{self.port}"
        self.process = GuardedProcess(
            command=vllm_cli.vllm_command(
                "serve", args.model, "--host", "127.0.0.1", "--port", str(self.port), *args.flags()
            ),
            folder=folder or host.cache_folder() / "servers" / name,
            env=self._environment(),
            leases=leases,
            grace_s=grace_s,
        )

    @property
    def model_name(self) -> str:
        """The name to put into requests."""
        return self.args.served_model_name

    def _environment(self) -> dict[str, str]:
        env = self.args.environment()
        if host.user_path(self.args.model).is_dir():
            env.setdefault("HF_HUB_OFFLINE", "1")
        library = vllm_cli.openmp_preload() if self.args.device == "cpu" else None
        if library:
            env.setdefault("LD_PRELOAD", library)
        return env

    def get(self, path: str, *, timeout_s: float = 30.0) -> bytes:
        """One GET. Raises EngineError, with the log's end when the server has died."""
        try:
            status, body = http_get(
                self.base_url, path, timeout_s=timeout_s, api_key=self.args.api_key()
            )
        except OSError as error:
            if self.alive():
                raise EngineError(
                    f"GET {path}: {error}. The server process lives; log: {self.log}"
                ) from error
            raise EngineError(
                f"the server is gone: GET {path}: {error}\n{self.process.explain()}"
            ) from error
        if status != 200:
            raise EngineError(
                f"GET {path} answered {status}: {body[:300].decode(errors='replace')}"
            )
        return body

    def metrics(self) -> dict[str, float]:
        """All samples of ``/metrics`` now: ``name{label="value",...}`` to value."""
        from prometheus_client.parser import text_string_to_metric_families

        samples: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics").decode()):
            for sample in family.samples:
                labels = ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
                samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return samples

    def counter(self, name: str) -> float:
        """Sum of one metric over all its label sets. Raises EngineError when it does not exist."""
        sums = sum_over_labels(self.metrics())
        if name not in sums:
            known = sorted(k for k in sums if k.startswith("vllm:"))
            raise EngineError(f"/metrics has no {name!r}; it has {', '.join(known)}")
        return sums[name]

    def cache_config(self) -> dict[str, str]:
        """The engine's own KV-cache configuration, as ``/metrics`` publishes it."""
        for key in self.metrics():
            if key.startswith("vllm:cache_config_info{"):
                return dict(re.findall(r'(\w+)="([^"]*)"', key))
        raise EngineError("/metrics has no vllm:cache_config_info")

    def kv_cache_tokens(self) -> int:
        """Tokens in the KV pool, from the line the engine prints at start."""
        match = KV_TOKENS_LINE.search(self.log.read_text(errors="replace"))
        if not match:
            raise EngineError(f"no 'KV cache size' line in {self.log}")
        return int(match.group(1).replace(",", ""))

    def effective_config(self) -> dict[str, Any]:
        """What the server really runs with: version, model, cache configuration, its settings."""
        models = json.loads(self.get("/v1/models"))["data"]
        served: Mapping[str, Any] = models[0] if models else {}
        config: dict[str, Any] = {
            "engine": "vllm",
            "version": json.loads(self.get("/version")).get("version"),
            "model": served.get("root"),
            "served_model_name": served.get("id"),
            "max_model_len": served.get("max_model_len"),
            "cache_config": self.cache_config(),
            "kv_cache_tokens": self.kv_cache_tokens(),
            "command": self.process.command,
            "environment": dict(self.process.env),
        }
        config["vllm_config"] = self._server_info()
        return config

    def describe(self) -> dict[str, Any]:
        """The facts to write down about a server before anything is measured on it."""
        config = self.effective_config()
        return {
            "engine": f"vLLM {config['version']}",
            "model": Path(self.args.model).name,
            "dtype": self.args.dtype,
            "cores": list(self.args.cores or host.core_ids()),
            "load time [s]": round(self.load_s, 1) if self.load_s is not None else None,
            "longest sequence [tokens]": config["max_model_len"],
            "KV pool [tokens]": config["kv_cache_tokens"],
            "address": self.base_url.rpartition(":")[0] + ":<free port>",
            "log": host.short_path(self.log),
            "weights": host.short_path(self.args.model),
        }

    def _server_info(self) -> str | dict[str, Any] | None:
        try:
            return json.loads(self.get("/server_info?config_format=json")).get("vllm_config")
        except (EngineError, ValueError):
            return None  # only servers in development mode tell; null in the record
