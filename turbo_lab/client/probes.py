"""What one resource sample holds, and how each part is read. Unknown is null with a reason."""

from __future__ import annotations

import contextlib
import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from turbo_lab.core.direct import open_direct

CLIENT = "client"  # Watched alone: a server that it started is not the client's load.
METRICS_TIMEOUT_S = 2.0
MAX_METRICS = 200
MAX_PAGE_BYTES = 4 * 2**20
FAMILY_S = 5.0  # How long the list of a process's children is kept: finding them is slow.
PAUSE_S = 2e-4  # Between pieces of a sample: a client on the same core waits for one piece only.
_LABELS = r'(?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*'  # A brace or a quote may stand inside a value.
_LINE = re.compile(rf"^([A-Za-z_:][\w:]*)(?:\{{{_LABELS}\}})?[ \t]+(\S+)", re.MULTILINE)
_SKIP = re.compile(r"(_bucket|_created|_info)$|^(python_|process_|http_)")


class Probes:
    """Reads one sample after another; differences (CPU, network) are against the one before."""

    def __init__(self, *, pids: Mapping[str, int], metrics_url: str | None) -> None:
        import psutil

        self._psutil = psutil
        self._pids = dict(pids)
        self._url = metrics_url
        self._gpus = GpuProbe()
        self._net0 = psutil.net_io_counters()
        self._last: dict[str, tuple[float, float]] = {}
        self._families: dict[str, tuple[float, list[Any]]] = {}
        self.count = 0
        psutil.cpu_percent()

    def sample(self) -> dict[str, Any]:
        """One row; ``t_s`` is ``time.perf_counter`` at its middle."""
        before = time.perf_counter()
        memory = self._psutil.virtual_memory()
        row: dict[str, Any] = {
            "cpu_percent": self._psutil.cpu_percent(),
            "memory_available_bytes": memory.available,
            "page_cache_bytes": getattr(memory, "cached", None),
            **self._network(),
            "processes": {name: self._tree(name, pid) for name, pid in self._pids.items()},
            "gpus": self._gpus.sample(),
            "gpus_reason": self._gpus.reason,
        }
        t_s = (before + time.perf_counter()) / 2
        engine, reason = self._engine()
        self.count += 1
        return {"t_s": t_s, **row, "engine": engine, "engine_reason": reason}

    def _network(self) -> dict[str, int | None]:
        now = self._psutil.net_io_counters()
        if now is None or self._net0 is None:
            return {"net_sent_bytes": None, "net_received_bytes": None}
        return {
            "net_sent_bytes": now.bytes_sent - self._net0.bytes_sent,
            "net_received_bytes": now.bytes_recv - self._net0.bytes_recv,
        }

    def _tree(self, name: str, pid: int) -> dict[str, Any] | None:
        """CPU and memory of a process with its children; None when it is gone."""
        ps = self._psutil
        try:
            family = self._family(name, pid)
        except ps.Error:
            return None
        used_s = rss = count = 0
        for process in family:
            time.sleep(PAUSE_S)
            with contextlib.suppress(ps.Error):
                times = process.cpu_times()
                used_s += times.user + times.system
                rss += process.memory_info().rss
                count += 1
        now = time.perf_counter()
        then = self._last.get(name)
        self._last[name] = (now, used_s)
        cores = (used_s - then[1]) / (now - then[0]) if then and now > then[0] else None
        return {"cpu_s": used_s, "cores": cores, "resident_bytes": rss, "processes": count}

    def _family(self, name: str, pid: int) -> list[Any]:
        """The process and its children, found anew every few seconds. Raises psutil.Error."""
        root, now = self._psutil.Process(pid), time.perf_counter()
        if name == CLIENT:
            return [root]
        found_s, family = self._families.get(name, (float("-inf"), []))
        if now - found_s > FAMILY_S or family[0] != root:
            family = [root, *root.children(recursive=True)]
            self._families[name] = (now, family)
        return family

    def _engine(self) -> tuple[dict[str, float] | None, str | None]:
        if self._url is None:
            return None, "no metrics page was given"
        try:
            with open_direct(self._url, timeout_s=METRICS_TIMEOUT_S) as answer:
                return parse_metrics(answer.read(MAX_PAGE_BYTES).decode(errors="replace")), None
        except (OSError, http.client.HTTPException, ValueError, urllib.error.URLError) as error:
            return None, f"{type(error).__name__}: {error}"[:200]


def parse_metrics(text: str) -> dict[str, float]:
    """Gauges and counters of a Prometheus page, summed over their label sets.

    Histogram buckets, creation times and the Python runtime's own numbers are left out; gauges
    that are shares (``..._perc``, ``..._usage``) take their largest label set.
    """
    out: dict[str, float] = {}
    for name, value in _LINE.findall(text):
        if _SKIP.search(name):
            continue
        try:
            number = float(value)
        except ValueError:
            continue
        if number != number or number in (float("inf"), float("-inf")):
            continue
        if name.endswith(("_perc", "_usage")):
            out[name] = max(out.get(name, number), number)
        elif name in out or len(out) < MAX_METRICS:
            out[name] = out.get(name, 0.0) + number
    return out


class GpuProbe:
    """NVIDIA GPUs through NVML; ``reason`` says why there is none."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._handles: list[Any] = []
        try:
            import pynvml
        except ImportError:
            self.reason = "nvidia-ml-py is not installed"
            return
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        except pynvml.NVMLError as error:
            self.reason = f"NVML: {error}"

    def sample(self) -> list[dict[str, Any]]:
        """One row per GPU; a reading that the card refuses is None."""
        return [self._one(handle) for handle in self._handles]

    def _one(self, handle: Any) -> dict[str, Any]:
        nvml = self._nvml

        def read(call: Any) -> Any:
            try:
                return call()
            except nvml.NVMLError:
                return None

        memory = read(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        busy = read(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        power_mw = read(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        clock = nvml.NVML_CLOCK_SM
        return {
            "memory_used_bytes": memory.used if memory else None,
            "memory_total_bytes": memory.total if memory else None,
            "utilisation_percent": busy.gpu if busy else None,
            "memory_utilisation_percent": busy.memory if busy else None,
            "power_w": power_mw / 1e3 if power_mw is not None else None,
            "energy_mj": read(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)),
            "sm_clock_mhz": read(lambda: nvml.nvmlDeviceGetClockInfo(handle, clock)),
            "temperature_c": read(lambda: nvml.nvmlDeviceGetTemperature(handle, 0)),
        }
