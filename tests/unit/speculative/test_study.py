"""The study's parts on scripted servers: what is read from pairs, calibrations and crowds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core.config import Dials
from turbo_lab.core.errors import RecordError, UnmeasuredError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.sampling_repair import SWITCH
from turbo_lab.metrics.timeline import Chunk, Timeline
from turbo_lab.speculative import arms, sampled, study
from turbo_lab.speculative.arms import OFF, Arm, Shop
from turbo_lab.speculative.counters import GuessCounts
from turbo_lab.speculative.runs import ClassRun
from turbo_lab.workload.request import Request

NGRAM, DRAFT = Arm("ngram", 10), Arm("draft", 3)
CPU, REPLAY = Dials("cpu", "quick", "a test"), Dials("replay", "quick", "a test")


def reply(tokens: int, step_s: float, *, burst: int = 1, start: float = 0.0) -> Timeline:
    times = [start + 0.1 + i * step_s for i in range(tokens // burst + 1)]
    chunks = [Chunk(times[0], 1), *(Chunk(t, burst) for t in times[1:])]
    return Timeline(
        sent_s=start, status_code=200, chunks=tuple(chunks), finish_reason="length",
        saw_done=True, closed_s=times[-1], text="x", usage={"completion_tokens": tokens + 1},
    )  # fmt: skip


def pair(off: Timeline, on: Timeline) -> dict[str, Any]:
    sides = {"off": off, "on": on}
    return {s: ClassRun("copy", [t], GuessCounts(9, 9)).to_dict() for s, t in sides.items()}


FOUND = {"copy": pair(reply(40, 0.02), reply(40, 0.03, burst=4))}


def test_gain_is_time_per_token_over_time_per_token() -> None:
    assert study.gain(FOUND, "copy") == pytest.approx(4 * 0.02 / 0.03)
    assert study.alone_tok_s(FOUND, "off") == pytest.approx(41 / 0.9)
    for ask in (lambda: study.gain(None, "copy"), lambda: study.gain(FOUND, "prose"),
                lambda: study.alone_tok_s(None, "on")):  # fmt: skip
        with pytest.raises(UnmeasuredError):
            ask()


def steps(seconds: float) -> dict[str, Any]:
    return {"step_s": [seconds, 2 * seconds], "tokens_per_step": 1.0, "concurrency": 1}


def linear(k: float) -> float:
    return 1 + 0.05 * k


def test_costs_of_lookup_and_of_a_draft() -> None:
    plain = {"forced": steps(0.020), "fresh": steps(0.022)}
    found = {"forced": steps(0.040), "fresh": steps(0.030)}
    law = study.costs(found, plain=plain, arm=NGRAM, shape=linear)
    assert law.empty == pytest.approx(1.4), "8 ms of searching over a plain step of 20 ms"
    assert (law(0), law(10)) == pytest.approx((1.4, 2.0))
    assert law(5) == pytest.approx(1.7), "in between it follows the shape"
    assert law.check == pytest.approx(1.6)
    draft = study.costs({"forced": steps(0.035)}, plain=plain, arm=DRAFT, shape=linear)
    assert draft.empty == 1
    assert draft.draft_cost() == pytest.approx((1.75 - 1.15) / 3)
    with pytest.raises(UnmeasuredError, match="ngram 10"):
        study.costs(None, plain=plain, arm=NGRAM, shape=linear)


def test_a_crowd_is_mixed_and_counts_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    def load(asked: Sequence[Request], **kind: Any) -> list[Timeline]:
        sent.extend(str(r.labels["class"]) for r in asked)
        return [reply(40, 0.02, start=0.1 * i) for i, _ in enumerate(asked)]

    monkeypatch.setattr(study, "run_closed_loop", load)
    monkeypatch.setattr(study, "REST_S", 0.0)
    ids = {"copy": [[1], [2]], "prose": [[3], [4]]}
    asked = study.as_requests(ids, model="lab", max_tokens=9)
    server = type("Server", (), {"base_url": "http://127.0.0.1:1"})
    found = study.crowd(server, asked, users=2)
    assert sent == ["copy", "prose", "copy", "prose"], "classes take turns"
    assert found["tok_s"] == pytest.approx(4 * 41 / (0.3 + 0.9))


def test_the_shop_changes_speculation_alone(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    base = VllmArgs(model="org/model")
    monkeypatch.setattr(arms, "base_args", lambda dials, report: base)
    monkeypatch.setattr(arms, "current_pool", lambda: type("Pool", (), {"folder": tmp_path}))
    shop = Shop(CPU, arms=(OFF, NGRAM))
    assert shop.args(OFF) == base
    own = shop.args(NGRAM)
    assert own.replace(env=(), speculative_config=None) == base
    switch = Path(dict(own.env)[SWITCH])
    with shop.repaired():
        assert switch.exists()
    assert not switch.exists()
    with Shop(REPLAY).repaired():
        assert not switch.exists(), "nothing is written in replay"


def test_a_missing_draft_does_not_take_the_others_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(dials: Dials, *, report: Any) -> str:
        raise RecordError("no packed draft")

    monkeypatch.setattr(arms, "base_args", lambda dials, report: VllmArgs(model="org/model"))
    monkeypatch.setattr(arms, "draft_model", missing)
    monkeypatch.setattr(arms, "shared_server", lambda args: args)
    monkeypatch.setattr(Shop, "roomy", lambda self: True)
    shop = Shop(CPU, arms=(OFF, NGRAM, DRAFT))
    assert shop.server(OFF) == VllmArgs(model="org/model")
    with pytest.raises(RecordError):
        shop.server(DRAFT)


def test_words_are_counted_at_their_place() -> None:
    counts = {"red blue": 3, "blue blue": 1}
    assert sampled.at_place(counts, 0) == {"blue": 1, "red": 3}
    assert sampled.shares(sampled.at_place(counts, 1), ["red", "blue"]) == [0.0, 1.0]
