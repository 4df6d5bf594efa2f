"""Copy rates are real rates; the engine's refusal is quoted, not its echo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core.errors import EngineError, UnmeasuredError, UsageError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.experiment import offload

WARNING = (
    "(APIServer pid=2) WARNING Found ulimit of 99. This can cause `OSError: [Errno 24] Too many`"
)
COLOURED = "\x1b[0;36m(EngineCore pid=1)\x1b[0m \x1b[31mERROR\x1b[0m \x1b[90m[core.py:15]\x1b[0m "
ECHO = (
    "(APIServer pid=2) ERROR RuntimeError: Engine core initialization failed. See root cause above."
)
REFUSAL = "CPU Offloading is currently only supported on GPUs"
LOG = f"{WARNING}\n{COLOURED}Traceback (most recent\n{COLOURED}Exception: {REFUSAL}\n{ECHO}\n"


def test_rates_are_bytes_over_time_and_nothing_stays(tmp_path: Path) -> None:
    rates = offload.copy_rates(tmp_path, files=4, file_bytes=1 << 20)
    assert set(rates) == {"write_bytes_s", "read_bytes_s"}
    assert min(rates.values()) > 1e6
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_missing_is_unmeasured(tmp_path: Path) -> None:
    with pytest.raises(UnmeasuredError, match="cannot be used"):
        offload.copy_rates(tmp_path / "none", files=1, file_bytes=8)
    with pytest.raises(UsageError, match="0 files"):
        offload.copy_rates(tmp_path, files=0, file_bytes=8)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """``fake(refuses)``: a server class that starts or refuses; keeps what was asked of it."""

    def install(*, refuses: bool, log: str = LOG) -> dict[str, Any]:
        seen: dict[str, Any] = {"stopped": 0}

        class Fake:
            def __init__(self, args: VllmArgs) -> None:
                seen["args"] = args
                self.log = tmp_path / "server.log"
                self.log.write_text(log)

            def start(self) -> Any:
                return self

            def wait_ready(self, timeout_s: float) -> float:
                if refuses:
                    raise EngineError("vllm serve ended while starting.")
                return 1.0

            def stop(self) -> None:
                seen["stopped"] += 1

        monkeypatch.setattr(offload, "VllmServer", Fake)
        return seen

    return install


def test_a_refusal_is_quoted_and_the_server_is_stopped(fake: Any) -> None:
    seen = fake(refuses=True)
    told = offload.ask_for_native_offload(VllmArgs.make(model="m"))
    assert told == {"works": False, "said": REFUSAL}
    assert seen["stopped"] == 1
    assert ("--kv-offloading-size", "1") in seen["args"].extra
    assert seen["args"].enable_prefix_caching


def test_a_start_that_works_is_stopped_too(fake: Any) -> None:
    seen = fake(refuses=False)
    assert offload.ask_for_native_offload(VllmArgs.make(model="m")) == {
        "works": True, "said": None,
    }  # fmt: skip
    assert seen["stopped"] == 1


def test_a_log_without_an_error_leaves_the_own_message(fake: Any) -> None:
    fake(refuses=True, log="nothing here\n")
    told = offload.ask_for_native_offload(VllmArgs.make(model="m"))
    assert told["said"] == "vllm serve ended while starting."
