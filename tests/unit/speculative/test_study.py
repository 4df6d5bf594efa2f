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
from turbo_lab.speculative import arms, cost, sampled, study
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
    for ask in (lambda: study.gain(None, "copy"), lambda: study.gain(FOUND, "prose")):
        with pytest.raises(UnmeasuredError):
            ask()


def steps(off_s: float, on_s: float) -> dict[str, Any]:
    return cost.StepPair((off_s, 2 * off_s, off_s), (on_s, 2 * on_s, on_s), 1.0).to_dict()


def linear(k: float) -> float:
    return 1 + 0.05 * k


def test_costs_of_lookup_and_of_a_draft() -> None:
    found = {"forced": steps(0.020, 0.040), "fresh": steps(0.022, 0.0308)}
    law = study.costs(found, arm=NGRAM, shape=linear)
    assert law.empty == pytest.approx(1.4)
    assert (law(0), law(10)) == pytest.approx((1.4, 2.0))
    assert law(5) == pytest.approx(1.7), "in between it follows the shape"
    assert law.check == pytest.approx(1.6)
    draft = study.costs({"forced": steps(0.020, 0.035)}, arm=DRAFT, shape=linear)
    assert draft.empty == 1
    assert draft.draft_cost() == pytest.approx((1.75 - 1.15) / 3)
    with pytest.raises(UnmeasuredError, match="ngram 10"):
        study.costs(None, arm=NGRAM, shape=linear)


class Player:
    """``play`` on scripted servers: a server is a list of seconds per token, used in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[list[str]] = []
        monkeypatch.setattr(study, "REST_S", 0.0)
        monkeypatch.setattr(study, "warm", lambda server, asked: None)
        monkeypatch.setattr(study, "play", self)

    def __call__(
        self, server: list[float], kind: str, asked: Sequence[Request], *, concurrency: int = 1
    ) -> ClassRun:
        self.sent.append([str(r.request_id) for r in asked])
        step_s = server.pop(0) if len(server) > 1 else server[0]
        return ClassRun(kind, [reply(40, step_s) for _ in asked], GuessCounts(9, 9))


ASKED = study.as_requests({"copy": [[1], [2]]}, model="lab", max_tokens=9)


def test_a_crowd_asks_the_prompts_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    player = Player(monkeypatch)
    found = study.crowd([0.05], "copy", ASKED["copy"], users=5)
    assert len(set(player.sent[0])) == 5
    assert study.crowd_tok_s(found) == pytest.approx(5 / 0.05)
    with pytest.raises(UnmeasuredError):
        study.crowd_tok_s(None)


def test_a_disturbed_pair_is_played_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    player, usual = Player(monkeypatch), {"copy": 0.02}
    found = study.beside([0.05, 0.021, 0.9], [0.01, 0.012], ASKED, expected_s=usual)
    assert study.gain(found, "copy") == pytest.approx(0.021 / 0.012)
    assert len(player.sent) == 4
    quiet = study.beside([0.021], [0.01], ASKED, expected_s=usual)
    assert len(player.sent) == 6
    assert study.gain(quiet, "copy") == pytest.approx(2.1)
    study.beside([0.05], [0.01], ASKED)
    assert len(player.sent) == 8, "without an expectation nothing is judged"


def test_together_the_price_of_a_guess_is_that_of_a_full_batch() -> None:
    found = {"forced": steps(0.020, 0.040), "fresh": steps(0.020, 0.026)}
    law, crowd = (
        study.costs(found, arm=NGRAM, shape=linear),
        cost.StepPair((0.03,), (0.15,), 11.0),
    )
    both = law.together(crowd, alone=study.forced_of(found))
    assert (both.empty, both(0), both(10)) == pytest.approx((1.2, 1.2, 5.0))
    assert both(5) == pytest.approx(3.1)


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
    shop = Shop(CPU, arms=(OFF, NGRAM, DRAFT))
    assert shop.server(OFF) == VllmArgs(model="org/model")
    with pytest.raises(RecordError):
        shop.server(DRAFT)


def test_words_are_counted_at_their_place() -> None:
    counts = {"red blue": 3, "blue blue": 1}
    assert sampled.at_place(counts, 0) == {"blue": 1, "red": 3}
    assert sampled.shares(sampled.at_place(counts, 1), ["red", "blue"]) == [0.0, 1.0]


def test_a_step_that_does_more_but_seems_cheaper_is_timed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impossible = cost.StepPair((0.02, 0.02), (0.015, 0.015), 1.0)
    sound = cost.StepPair((0.02, 0.02), (0.03, 0.03), 1.0)
    waiting = [impossible, sound, sound]
    monkeypatch.setattr(study, "REST_S", 0.0)
    monkeypatch.setattr(cost, "forced_pair", lambda *a, **k: waiting.pop(0))
    monkeypatch.setattr(cost, "fresh_pair", lambda *a, **k: waiting.pop(0))
    found = study.calibrate(None, None, NGRAM, vocab=100, passes=2)
    assert found == {"forced": sound.to_dict(), "fresh": sound.to_dict()} and not waiting
