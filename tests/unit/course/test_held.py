"""Which readings of the engine's page count as blocks held, and what happens when none does."""

from __future__ import annotations

from typing import Any

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.course import held
from turbo_lab.metrics.timeline import Timeline

BLOCKS = 101  # 100 usable ones beside the null block


class FakeServer:
    base_url = "http://127.0.0.1:1"

    def cache_config(self) -> dict[str, str]:
        return {"num_gpu_blocks": str(BLOCKS)}


def page(running: int, share: float) -> dict[str, Any]:
    return {"engine": {held.RUNNING: float(running), held.USAGE: share}}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``ask(runs)``: held_blocks of two requests; each entry of ``runs`` is one run's samples."""

    def asked(*runs: list[dict[str, Any]], error: str | None = None) -> dict[str, Any]:
        left = list(runs)

        class FakeSampler:
            def __init__(self, *_: Any, **__: Any) -> None:
                self.rows = left.pop(0)

            def start(self) -> FakeSampler:
                return self

            def stop(self) -> list[dict[str, Any]]:
                return self.rows

        answer = [Timeline(sent_s=0.0, closed_s=1.0, error=error)] * 2
        monkeypatch.setattr(held, "Sampler", FakeSampler)
        monkeypatch.setattr(held, "run_closed_loop", lambda *_, **__: answer)
        requests = held.conversations(
            2, prompt_tokens=5, reply_tokens=2, model="lab", vocab_size=50, seed=0
        )
        return held.held_blocks(FakeServer(), requests) | {"runs_left": len(left)}  # type: ignore[arg-type]

    return asked


def test_most_blocks_of_the_readings_in_which_all_requests_run(ask: Any) -> None:
    found = ask([page(0, 0.0), page(1, 0.02), page(2, 0.03), page(2, 0.04), page(0, 0.0)])
    assert found == {"value": 4, "usable_blocks": 100, "samples_taken": 2, "runs_left": 0}


def test_a_reading_with_other_requests_does_not_count(ask: Any) -> None:
    found = ask([page(3, 0.9), page(2, 0.04)])
    assert found["value"] == 4


def test_starved_sampler_means_another_try_not_zero(ask: Any) -> None:
    found = ask([page(0, 0.0)], [{"engine": None}, page(1, 0.02)], [page(2, 0.04)])
    assert found["value"] == 4 and found["runs_left"] == 0


def test_no_reading_in_all_tries_is_unmeasured(ask: Any) -> None:
    with pytest.raises(UnmeasuredError, match=r"none of 3 readings .* all 2 requests ran"):
        ask(*[[page(0, 0.0)]] * held.TRIES)


def test_page_without_the_gauge_is_named(ask: Any) -> None:
    with pytest.raises(UnmeasuredError, match=held.USAGE):
        ask(*[[{"engine": {held.RUNNING: 2.0}}]] * held.TRIES)


def test_failed_request_is_unmeasured_at_once(ask: Any) -> None:
    with pytest.raises(UnmeasuredError, match="2 of 2 requests failed: HTTP 500"):
        ask([page(2, 0.04)], error="HTTP 500")
