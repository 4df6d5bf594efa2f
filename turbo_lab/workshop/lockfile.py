"""The locks of ``requirements/`` read for a chosen system and Python, not only for this one."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from turbo_lab.core.errors import ConfigError, UsageError, did_you_mean

_PIN = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+?)\s*(?:;\s*(.*?))?\s*$")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
_PATCH = re.compile(r"python_full_version\s*[<>=!]+\s*['\"]([\d.]+)['\"]")
_GLIBC = (34, 31, 28, 27, 26, 24, 17, 12, 5)


@dataclass(frozen=True)
class Pin:
    """One line of a lock: a version and the sha256 of every file that may stand for it."""

    name: str
    version: str
    hashes: tuple[str, ...]

    def line(self) -> str:
        """The requirement as pip reads it."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash={h}" for h in self.hashes)])


@dataclass(frozen=True)
class Target:
    """A system and a Python that wheels are collected for.

    Attributes:
        name: For example ``linux-x86_64-cp311``.
        python: For example ``3.11``.
        markers: Values of the environment markers that differ from this machine's.
        tags: Platform tags as pip's ``--platform`` takes them; empty for this very machine.
    """

    name: str
    python: str
    markers: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()


def _linux(machine: str) -> tuple[str, ...]:
    legacy = (f"manylinux2014_{machine}",)
    return (*(f"manylinux_2_{minor}_{machine}" for minor in _GLIBC), *legacy)


def _systems() -> dict[str, tuple[tuple[str, ...], dict[str, str]]]:
    def facts(platform_name: str, system: str, os_name: str, machine: str) -> dict[str, str]:
        return {
            "sys_platform": platform_name,
            "platform_system": system,
            "os_name": os_name,
            "platform_machine": machine,
        }

    return {
        "linux-x86_64": (_linux("x86_64"), facts("linux", "Linux", "posix", "x86_64")),
        "linux-aarch64": (_linux("aarch64"), facts("linux", "Linux", "posix", "aarch64")),
        "darwin-arm64": (("macosx_14_0_arm64",), facts("darwin", "Darwin", "posix", "arm64")),
        "darwin-x86_64": (("macosx_14_0_x86_64",), facts("darwin", "Darwin", "posix", "x86_64")),
        "windows-amd64": (("win_amd64",), facts("win32", "Windows", "nt", "AMD64")),
    }


def this_system() -> str:
    """This machine's system as ``linux-x86_64``."""
    return f"{platform.system()}-{platform.machine()}".lower()


def find_target(system: str | None = None, python: str | None = None) -> Target:
    """The target of that system and Python; None is this one's.

    Raises UsageError for an unknown system, and for a Python older than 3.11.
    """
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    wanted, version = system or this_system(), python or here
    match = re.fullmatch(r"3\.(\d+)", version)
    if match is None or int(match[1]) < 11:
        raise UsageError(f"python is {version!r}; allowed: 3.11 or newer, as in 3.12")
    name = f"{wanted}-cp3{match[1]}"
    if wanted == this_system() and version == here:
        return Target(name, version)
    systems = _systems()
    if wanted not in systems:
        raise UsageError(f"There is no system {wanted!r}.{did_you_mean(wanted, list(systems))}")
    tags, markers = systems[wanted]
    return Target(name, version, tuple(markers.items()), tags)


def pins_for(text: str, target: Target) -> tuple[Pin, ...]:
    """Pins of a lock that ``target`` needs, whatever the patch release of its Python.

    Where the lock has one version for 3.11.2 and another for 3.11.9, both are among them.
    Raises ConfigError for a line without version or hash: what it would bring is not known.
    """
    from packaging.markers import Marker, default_environment

    values = {**default_environment(), **dict(target.markers), "python_version": target.python}
    patches = [{**values, "python_full_version": full} for full in _patches(text, target.python)]
    found = []
    for line in logical_lines(text):
        match = _PIN.match(line.split(" --hash")[0].strip())
        hashes = tuple(_HASH.findall(line))
        if match is None or not hashes:
            raise ConfigError(f"the lock's line {line[:80]!r} has no version or no sha256")
        name, version, marker = match.groups()
        if marker is None or any(Marker(marker).evaluate(environment=one) for one in patches):
            found.append(Pin(name, version, hashes))
    return tuple(found)


def _patches(text: str, python: str) -> list[str]:
    """Patch releases that the markers of a lock can tell apart: those named, first and last."""
    named = {full for full in _PATCH.findall(text) if full.startswith(f"{python}.")}
    return sorted({f"{python}.0", f"{python}.999", *named})


def batches(pins: Sequence[Pin], size: int) -> list[list[Pin]]:
    """Groups of at most ``size`` pins, no package twice in one: pip takes one version per call."""
    rounds: list[dict[str, Pin]] = []
    for pin in pins:
        free = next((one for one in rounds if pin.name not in one), None)
        if free is None:
            rounds.append(free := {})
        free[pin.name] = pin
    ordered = [list(one.values()) for one in rounds]
    return [one[i : i + size] for one in ordered for i in range(0, len(one), size)]


def logical_lines(text: str) -> Sequence[str]:
    """Lines of a requirements file: continued ones joined, comments and empty ones left out."""
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    lines = (line.strip() for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
