"""Rules about the tree itself: short files, no traces of one machine, honest layers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HARD_CAP_LINES = 300
FOREIGN_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users|work|opt|mnt)/[\w.-]+")


def tracked(*patterns: str) -> list[Path]:
    """Files under git (or, outside a checkout, all files) that match."""
    out = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True
    )
    if out.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in out.stdout.split("\0") if name and (ROOT / name).exists()]


def test_files_stay_under_the_hard_cap() -> None:
    too_long = {
        str(p.relative_to(ROOT)): n
        for p in tracked("*.py")
        if (n := len(p.read_text().splitlines())) > HARD_CAP_LINES
    }
    assert not too_long


def test_median_file_is_short() -> None:
    lengths = sorted(len(p.read_text().splitlines()) for p in tracked("turbo_lab/*.py"))
    assert lengths[len(lengths) // 2] <= 160


def test_no_path_of_one_machine_is_committed() -> None:
    texts = tracked("*.py", "*.ipynb", "*.json", "*.md", "*.toml", "*.yml", "*.yaml", "Makefile")
    found = {
        f"{p.relative_to(ROOT)}: {m.group(0)}"
        for p in texts
        for m in FOREIGN_PATH.finditer(p.read_text(errors="replace"))
        if not p.is_relative_to(ROOT / "tests")
    }
    assert not found


def test_unfinished_work_is_not_committed() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError")
    found = [str(p) for p in tracked("turbo_lab/*.py") if marks.search(p.read_text())]
    assert not found


def test_light_import_needs_no_heavy_package() -> None:
    """All folders that only compute work without torch, transformers, vLLM and matplotlib."""
    code = (
        "import sys, pkgutil, importlib, turbo_lab\n"
        "light = ('core','models','hardware','workload','metrics','records','estimate','network',"
        "'numerics','engines','client','course')\n"
        "for m in pkgutil.walk_packages(turbo_lab.__path__, 'turbo_lab.'):\n"
        "    if m.name.split('.')[1] in light and not m.name.endswith('__main__'):\n"
        "        importlib.import_module(m.name)\n"
        "heavy = {'torch', 'transformers', 'vllm', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
