"""Data sheets of accelerators: what the vendor prints, with source and date for every figure."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from turbo_lab.core.errors import ConfigError, UsageError, did_you_mean
from turbo_lab.core.host import repository_root
from turbo_lab.hardware.roofline import Roof

REQUIRED = ("memory_bytes", "bandwidth_bytes_s", "peak_fp32_flops", "peak_bf16_flops",
            "peak_fp16_flops", "peak_fp8_flops", "peak_int8_flops", "link_bytes_s",
            "power_w")  # fmt: skip
_FIELDS = ("value", "unit", "source", "url", "date", "basis", "note")
VARIANTS = frozenset({"nvl", "pcie", "laptop", "mobile", "max", "d", "ti", "super"})
_BASES = ("read", "recalled")
_PREFIX, _SUFFIX = "peak_", "_flops"


@dataclass(frozen=True)
class Figure:
    """One printed figure. ``value`` is None where no source gives it; then there is no source.

    ``date`` is the document's, as ``YYYY-MM``. ``basis``: ``read`` (in the document or a listing
    of it) or ``recalled`` (as commonly quoted from it, not read again here). ``note``: a trap,
    such as a doubled sparse rate.
    """

    value: float | None
    unit: str
    source: str | None
    url: str | None
    date: str | None
    basis: str | None
    note: str | None


@dataclass(frozen=True)
class Accelerator:
    """One chip. All rates are dense; the vendor's GB is taken as 10^9 bytes.

    ``link_bytes_s``: both directions together, as vendors print it.
    """

    slug: str
    name: str
    vendor: str
    kind: str
    device_names: tuple[str, ...]
    figures: Mapping[str, Figure]

    @property
    def memory_bytes(self) -> float | None:
        """Memory on the chip's package, as printed."""
        return self.figures["memory_bytes"].value

    @property
    def bandwidth_bytes_s(self) -> float | None:
        """Peak memory bandwidth."""
        return self.figures["bandwidth_bytes_s"].value

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Number formats with a printed matrix rate."""
        return tuple(
            key[len(_PREFIX) : -len(_SUFFIX)]
            for key, figure in self.figures.items()
            if key.startswith(_PREFIX) and figure.value is not None
        )

    def peak_flops(self, dtype: str = "bf16") -> float:
        """Dense operations per second of matrix products in ``dtype``.

        Raises UsageError where the chip has no such format or no source gives its rate.
        """
        figure = self.figures.get(f"{_PREFIX}{dtype}{_SUFFIX}")
        if figure is None or figure.value is None:
            raise UsageError(
                f"{self.name} has no printed rate for {dtype!r}."
                f"{did_you_mean(dtype, list(self.dtypes))}"
            )
        return figure.value

    def roof(self, dtype: str = "bf16") -> Roof:
        """The chip's roofline from its data sheet (nothing measured)."""
        if self.bandwidth_bytes_s is None:
            raise UsageError(f"no source gives the memory bandwidth of {self.name}.")
        return Roof(self.peak_flops(dtype), self.bandwidth_bytes_s, f"{self.name}, {dtype}")


def accelerators(folder: Path | None = None) -> tuple[Accelerator, ...]:
    """All data sheets in ``data/hardware``, ordered by file name.

    Raises ConfigError naming the file and the field when a figure lacks its source or date.
    """
    return _load_all(folder or repository_root() / "data" / "hardware")


def accelerator(name: str) -> Accelerator:
    """The chip with this slug (``h200-sxm5-141gb``) or full name. UsageError lists the known."""
    wanted = name.strip().lower()
    sheets = accelerators()
    for sheet in sheets:
        if wanted in (sheet.slug, sheet.name.lower()):
            return sheet
    raise UsageError(f"accelerator is {name!r}.{did_you_mean(wanted, [s.slug for s in sheets])}")


def match_device(device_name: str) -> Accelerator | None:
    """The sheet for a name as the driver prints it (``NVIDIA H200``); None where there is none."""
    found = [
        (len(pattern), sheet)
        for sheet in accelerators()
        for pattern in sheet.device_names
        if _contains(device_name, pattern)
    ]
    return max(found, key=lambda item: item[0])[1] if found else None


def _contains(device_name: str, pattern: str) -> bool:
    """True when ``pattern`` occurs as whole words and no word names another variant.

    L4 is not in L40S, and an H200 NVL or a laptop's 4090 is not the chip of the plain name.
    """
    text, part = f" {device_name.lower()} ", pattern.lower()
    start = text.find(part)
    if start < 0 or text[start + len(part)].isalnum():
        return False
    return not VARIANTS & (set(text.replace("-", " ").split()) - set(part.split()))


@functools.cache
def _load_all(folder: Path) -> tuple[Accelerator, ...]:
    return tuple(_load(path) for path in sorted(folder.glob("*.json")))


def _load(path: Path) -> Accelerator:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        figures = {key: _figure(path, key, value) for key, value in raw["figures"].items()}
        missing = [key for key in REQUIRED if key not in figures]
        if missing:
            raise ConfigError(f"{path.name}: figures are missing (unknown is null): {missing}")
        return Accelerator(
            slug=path.stem,
            name=raw["name"],
            vendor=raw["vendor"],
            kind=raw["kind"],
            device_names=tuple(raw["device_names"]),
            figures=MappingProxyType(figures),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path.name} is not a data sheet: {error!r}") from error


def _figure(path: Path, key: str, raw: Mapping[str, object]) -> Figure:
    if set(raw) != set(_FIELDS):
        raise ConfigError(f"{path.name}: {key} needs exactly the fields {list(_FIELDS)}")
    figure = Figure(**raw)  # type: ignore[arg-type]
    if figure.value is not None and not (figure.source and figure.date and figure.value > 0):
        raise ConfigError(f"{path.name}: {key} = {figure.value} has no source, no date or no sense")
    if not figure.unit or figure.basis not in ((None,) if figure.value is None else _BASES):
        raise ConfigError(f"{path.name}: {key} has no unit, or its basis is {figure.basis!r}")
    return figure
