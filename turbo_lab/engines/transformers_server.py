"""``transformers serve``: a second real server, and the greedy reference for the first."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import EngineError, MissingDependencyError
from turbo_lab.engines.base import GuardedProcess, free_port, http_get, require_free_port
from turbo_lab.engines.managed import ManagedServer
from turbo_lab.engines.vllm_server import check_model_folder


class TransformersServer(ManagedServer):
    """One ``transformers serve`` process for one model. A context manager, like ``VllmServer``."""

    what = "transformers serve"

    def __init__(
        self,
        model: str,
        *,
        dtype: str = "float32",
        device: str = "cpu",
        threads: int | None = None,
        folder: Path | None = None,
        port: int | None = None,
    ) -> None:
        if host.package_version("transformers") is None:
            raise MissingDependencyError("transformers", needed_for="transformers serve")
        check_model_folder(model)
        self.model_name, self.dtype, self.device = model, dtype, device
        self.port = require_free_port(port) if port else free_port()
        env = {
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": str(threads or host.cores_granted()),
        }
        if Path(model).is_dir():
            env["HF_HUB_OFFLINE"] = "1"
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-transformers-{self.port}"
        self.process = GuardedProcess(
            command=[
                sys.executable,
                "-m",
                "transformers.cli.transformers",
                "serve",
                model,
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--device",
                device,
                "--dtype",
                dtype,
            ],
            folder=folder or host.cache_folder() / "servers" / name,
            env=env,
        )
        self.load_s: float | None = None

    def effective_config(self) -> dict[str, Any]:
        """Version, model and settings. Raises EngineError when the server does not answer.

        The server has no endpoint that tells its configuration (``/v1/models`` scans the hub's
        cache folder and fails where there is none), so this is its command line, confirmed alive.
        """
        try:
            status, _ = http_get(self.base_url, "/health")
        except OSError as error:
            raise EngineError(f"the server is gone: {error}\n{self.process.explain()}") from error
        if status != 200:
            raise EngineError(f"/health answered {status}\n{self.process.explain()}")
        return {
            "engine": "transformers",
            "version": host.package_version("transformers"),
            "model": self.model_name,
            "dtype": self.dtype,
            "device": self.device,
            "command": self.process.command,
            "environment": dict(self.process.env),
        }

    def metrics(self) -> dict[str, float]:
        """No counters: ``transformers serve`` publishes none."""
        return {}
