"""The repair writes what the engine's wrapper loses, and only where a lesson asks for it."""

from __future__ import annotations

import pytest

from turbo_lab.engines import sampling_repair
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.sampling_repair import SWITCH, expand, install_if_asked, repair_env


def test_values_are_repeated_in_their_own_dtype() -> None:
    torch = pytest.importorskip("torch", reason="needs the cpu environment")
    ends = torch.tensor([3, 3, 4, 6], dtype=torch.int32)  # the second request has no tokens
    out = torch.full((6,), 7.25)
    expand(out, torch.tensor([2.0, 9.0, 0.0, 0.7]), ends, 0, 1, MAX_NUM_TOKENS=32)
    assert out.tolist() == pytest.approx([2.0, 2.0, 2.0, 1.0, 0.7, 0.7])
    whole = torch.zeros(6, dtype=torch.int32)
    expand(whole, torch.tensor([5, 9, 8, 0], dtype=torch.int32), ends)
    assert whole.tolist() == [5, 5, 5, 8, 0, 0]


def test_nothing_happens_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)  # an import would fail
    install_if_asked()
    monkeypatch.setenv(SWITCH, "/nowhere")
    install_if_asked()  # a build without the function is left alone


def test_the_switch_travels_in_the_servers_environment(tmp_path) -> None:
    args = VllmArgs(model="org/model", env=(repair_env(tmp_path / "on"),))
    assert args.environment()[sampling_repair.SWITCH] == str(tmp_path / "on")
