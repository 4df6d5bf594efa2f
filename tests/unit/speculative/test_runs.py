"""What is read from the streams of one class, and from replies that can hold one word only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.estimate.points import MeasuredStep, StepPoint
from turbo_lab.metrics.timeline import Chunk, Timeline
from turbo_lab.speculative import cost, runs, tokens
from turbo_lab.speculative.counters import GuessCounts
from turbo_lab.workload.request import Request


def reply(*marks: tuple[float, int, str], text: str = "x", finish: str = "length") -> Timeline:
    return Timeline(
        sent_s=0.0, status_code=200, chunks=tuple(Chunk(*m) for m in marks), finish_reason=finish,
        saw_done=True, closed_s=marks[-1][0], text=text,
        usage={"completion_tokens": sum(m[1] for m in marks)},
    )  # fmt: skip


BURSTS = reply((1.0, 1, "content"), (1.5, 4, "content"), (1.5, 1, "content"), (2.5, 1, "empty"))


def test_an_end_mark_without_text_is_a_token_and_equal_times_are_one_arrival() -> None:
    assert runs.token_marks(BURSTS) == [(1.0, 1), (1.5, 5), (2.5, 1)]
    assert runs.decode_span(BURSTS) == (6, 1.5)
    assert runs.tokens_per_chunk([BURSTS, BURSTS]) == [5, 1, 5, 1]


def test_unknown_counts_are_not_guessed() -> None:
    unknown = Timeline(sent_s=0.0, status_code=200, chunks=(Chunk(1.0, None, "content"),))
    with pytest.raises(UnmeasuredError, match="no token counts"):
        runs.token_marks(unknown)


def test_seconds_per_token_are_a_sum_over_a_sum() -> None:
    slow = reply((0.0, 1, "content"), (1.0, 1, "content"))
    run = runs.ClassRun("copy", [BURSTS, slow], GuessCounts(5, 9))
    assert run.token_s() == pytest.approx((1.5 + 1.0) / 7)
    assert run.steps() == 3
    again = runs.ClassRun.from_dict(run.to_dict())
    assert again == run


def test_a_failed_request_leaves_no_number() -> None:
    run = runs.ClassRun("copy", [BURSTS, Timeline(error="gone")], GuessCounts(5, 9))
    with pytest.raises(UnmeasuredError, match="1 of 2 copy requests failed"):
        run.texts()
    with pytest.raises(UnmeasuredError, match="none was sent"):
        runs.ClassRun("copy", [], GuessCounts(0, 0)).token_s()


def test_equality_and_where_it_ends() -> None:
    assert runs.equal_share(["a", "b"], ["a", "c"]) == 0.5
    with pytest.raises(UnmeasuredError):
        runs.equal_share([], [])
    assert runs.first_difference("same", "same") is None
    assert runs.first_difference("same", "sane") == 2
    assert runs.first_difference("same", "same more") == 4


class Server:
    base_url, model_name = "http://127.0.0.1:1", "lab"


def test_a_reply_that_ended_by_itself_has_one_id_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_tokenize", lambda server, body: [5, 6, 7])
    ended = reply((1.0, 4, "content"), finish="stop")
    assert tokens.read_reply(Server(), ended) == tokens.ReadReply((5, 6, 7, -1), exact=True)
    cut = reply((1.0, 4, "content"))
    assert tokens.read_reply(Server(), cut).exact is False


class Engine:
    """Answers forced requests: a step takes ``step_s`` and gives all it guessed, plus one."""

    def __init__(self, draft_tokens: int, step_s: float) -> None:
        self.k, self.step_s, self.asked, self.steps = draft_tokens, step_s, [], 0

    def closed_loop(self, asked: Sequence[Request]) -> list[Timeline]:
        self.asked += asked
        out = []
        for request in asked:
            left, now, marks = request.max_tokens - 1, 1.0, [(1.0, 1, "content")]
            while left > 0:
                gave, now = min(self.k + 1, left), now + self.step_s
                marks.append((now, gave, "content"))
                left, self.steps = left - gave, self.steps + 1
            out.append(reply(*marks))
        return out

    def counts(self) -> GuessCounts:
        return GuessCounts(self.steps, 0, self.steps if self.k else 0, self.k * self.steps,
                           self.k * self.steps)  # fmt: skip


@pytest.mark.parametrize(("k", "users"), [(10, 1), (3, 4)])
def test_forced_replies_give_the_price_of_a_step(
    k: int, users: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = {"off": Engine(0, 0.2), "on": Engine(k, 0.25)}
    monkeypatch.setattr(
        cost, "run_closed_loop",
        lambda asked, base_url, **kind: engines[base_url].closed_loop(asked),
    )  # fmt: skip
    monkeypatch.setattr(cost, "read_counts", lambda server: engines[server.base_url].counts())
    monkeypatch.setattr(cost, "text_tokens", lambda server, text: [2345])
    monkeypatch.setattr(cost, "REST_S", 0.0)
    off, on = (type("Server", (), {"base_url": name, "model_name": "lab"}) for name in engines)
    found = cost.forced_pair(off, on, draft_tokens=k, vocab=5000, passes=2, concurrency=users)
    assert found.off_s == pytest.approx((0.2, 0.2))
    assert found.ratio == pytest.approx(1.25)
    assert found.tokens_per_step == k + 1
    assert found.spread == pytest.approx(0.0)
    assert cost.StepPair.from_dict(found.to_dict()) == found
    asked = engines["on"].asked
    prompts = [tuple(r.prompt) for r in asked]
    assert len(set(prompts)) == len(prompts), "no two prompts are the same"
    assert all(p[-k - 8 :] == (2345,) * (k + 8) and p.count(2345) == k + 8 for p in prompts)
    assert all(r.extra["allowed_token_ids"] == [2345] for r in asked)


def test_a_drift_of_the_machine_leaves_the_ratio_alone() -> None:
    slower = cost.StepPair((0.02, 0.03, 0.05), (0.04, 0.06, 0.10), 11.0)
    assert slower.ratio == pytest.approx(2.0)
    assert slower.spread == pytest.approx(0.0)


def test_plain_batches_give_the_cost_of_a_check() -> None:
    times = {1: 0.05, 4: 0.06, 11: 0.1}
    steps = [MeasuredStep(StepPoint("decode", b, 160), (s, 2 * s)) for b, s in times.items()]
    law = cost.batch_cost(steps)
    assert law(0) == 1
    assert law(10) == pytest.approx(2.0)
    assert {p.batch for p in cost.batch_points([3, 10])} == {1, 4, 11}
