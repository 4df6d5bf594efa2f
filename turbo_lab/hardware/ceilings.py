"""What this machine reaches at best, as measured: the independent roof of the lessons."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_lab.core.errors import UnmeasuredError, UsageError, did_you_mean
from turbo_lab.hardware.roofline import Roof


@dataclass(frozen=True)
class BandwidthPoint:
    """Best bandwidth seen at one working-set size.

    ``copy_bytes_s`` counts each byte twice, read and written.
    """

    working_set_bytes: int
    read_bytes_s: float
    copy_bytes_s: float


@dataclass(frozen=True)
class Ceilings:
    """Measured ceilings of one device.

    ``matmul_flops``: dtype to best operations/s, None where the dtype cannot be multiplied here
    (``reasons`` says why). ``core_speedup``: rate on all granted cores over that on one; far below
    the number of cores means that they are shared. ``repeat_spread``: relative difference between
    the two halves of the repeats of the largest read, a first measure of noise.
    """

    device: str
    threads: int
    cores: int
    cache_bytes: Mapping[str, int]
    matmul_flops: Mapping[str, float | None]
    reasons: Mapping[str, str]
    bandwidth: tuple[BandwidthPoint, ...]
    core_speedup: float | None
    repeat_spread: float | None

    def peak_flops(self, dtype: str) -> float:
        """Best rate of matrix products in ``dtype``; UnmeasuredError with the reason."""
        if dtype not in self.matmul_flops:
            raise UsageError(
                f"no product was tried in {dtype!r}.{did_you_mean(dtype, list(self.matmul_flops))}"
            )
        rate = self.matmul_flops[dtype]
        if rate is None:
            raise UnmeasuredError(self.reasons.get(dtype, f"no product in {dtype} was measured"))
        return rate

    def bandwidth_bytes_s(self, working_set_bytes: float | None = None) -> float:
        """Best bandwidth for a working set of that size (default: the largest measured).

        The best of all measured sets at least as large, reading or copying: a cache can only help
        a smaller one, so this never understates what a set of that size may reach.
        """
        if not self.bandwidth:
            raise UnmeasuredError(f"no bandwidth was measured on {self.device}")
        largest = max(p.working_set_bytes for p in self.bandwidth)
        least = largest if working_set_bytes is None else min(working_set_bytes, largest)
        fit = [p for p in self.bandwidth if p.working_set_bytes >= least]
        return max(max(p.read_bytes_s, p.copy_bytes_s) for p in fit)

    def roof(self, dtype: str, *, working_set_bytes: float | None = None) -> Roof:
        """The measured roofline for ``dtype`` and a working set."""
        label = f"{self.device}, {dtype}, measured"
        return Roof(self.peak_flops(dtype), self.bandwidth_bytes_s(working_set_bytes), label)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, as records keep it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Ceilings:
        """Inverse of ``to_dict``."""
        points = tuple(BandwidthPoint(**point) for point in raw["bandwidth"])
        return cls(**{**raw, "bandwidth": points})

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict())


def merge(runs: Sequence[Ceilings]) -> Ceilings:
    """The best of several measurements of one device: other load can only lower a ceiling."""
    if not runs:
        raise UsageError("there are no ceilings to merge")
    first = runs[0]
    rates = {d: _best(r.matmul_flops.get(d) for r in runs) for d in first.matmul_flops}
    points = tuple(
        BandwidthPoint(
            group[0].working_set_bytes,
            max(p.read_bytes_s for p in group),
            max(p.copy_bytes_s for p in group),
        )
        for group in zip(*(r.bandwidth for r in runs), strict=True)
    )
    return dataclasses.replace(
        first,
        matmul_flops=rates,
        bandwidth=points,
        core_speedup=_best(r.core_speedup for r in runs),
        repeat_spread=min((r.repeat_spread for r in runs if r.repeat_spread is not None),
                          default=None),
    )  # fmt: skip


def _best(values: Any) -> float | None:
    return max((v for v in values if v is not None), default=None)


def cache_sizes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """Bytes of each cache of the first core, e.g. ``{"L1d": 32768, "L2": 1048576}``.

    Empty where the system does not tell. A virtual machine may show a cache that it shares.
    """
    sizes: dict[str, int] = {}
    for index in sorted(root.glob("index*")):
        try:
            level = (index / "level").read_text().strip()
            kind = (index / "type").read_text().strip()
            match = re.fullmatch(r"(\d+)([KMG]?)", (index / "size").read_text().strip())
        except OSError:
            continue
        if match:
            scale = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match.group(2)]
            suffix = {"Data": "d", "Instruction": "i"}.get(kind, "")
            sizes[f"L{level}{suffix}"] = int(match.group(1)) * scale
    return sizes
