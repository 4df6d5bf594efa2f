"""Fusion: the count of passes, pay-back, and the reasons for having no number."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from turbo_lab.core.errors import MissingDependencyError, UnmeasuredError
from turbo_lab.hardware import fusion


def times(**changes) -> fusion.FusionTimes:
    values = {"eager_s": 8e-3, "compiled_s": 2e-3, "cold_s": 6.002, "tokens": 4, "width": 4,
              "largest_difference": 0.0}  # fmt: skip
    return fusion.FusionTimes(**{**values, **changes})


def test_speedup_and_pay_back() -> None:
    assert times().speedup == 4
    assert times().calls_to_pay_back == pytest.approx(1000)
    assert times(compiled_s=9e-3).calls_to_pay_back == math.inf
    assert fusion.predicted_fusion_speedup() == 4


def test_without_a_compiler_there_is_a_reason_and_no_number(monkeypatch) -> None:
    monkeypatch.setattr(fusion.host, "package_version", lambda *names: "2.13.0")
    monkeypatch.setattr(fusion.shutil, "which", lambda name: None)
    with pytest.raises(UnmeasuredError, match="C\\+\\+ compiler"):
        fusion.probe_fusion()


def test_without_torch_the_install_line_is_shown(monkeypatch) -> None:
    monkeypatch.setattr(fusion.host, "package_version", lambda *names: None)
    with pytest.raises(MissingDependencyError, match="install"):
        fusion.probe_fusion()


def test_a_failing_compiler_is_unmeasured(monkeypatch) -> None:
    monkeypatch.setattr(fusion.host, "package_version", lambda *names: "2.13.0")
    monkeypatch.setattr(fusion.shutil, "which", lambda name: "/usr/bin/c++")
    failed = subprocess.CompletedProcess([], 1, "", "fatal error: no header")
    monkeypatch.setattr(fusion.subprocess, "run", lambda *args, **kwargs: failed)
    with pytest.raises(UnmeasuredError, match="no header"):
        fusion.probe_fusion()


@pytest.mark.slow
def test_compiled_and_eager_agree() -> None:
    pytest.importorskip("torch", reason="needs torch")
    if sys.platform != "linux" or not fusion.shutil.which("c++"):
        pytest.skip("no C++ compiler here")
    found = fusion.probe_fusion(tokens=64, width=64, budget_s=0.05)
    assert found.largest_difference < 1e-4
    assert found.cold_s > found.compiled_s > 0
