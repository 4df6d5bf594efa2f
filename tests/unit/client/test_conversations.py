"""Multi-turn load: each turn carries the server's own replies and waits for the one before."""

from __future__ import annotations

import itertools

import pytest

from turbo_lab.client.load import NOT_SENT, run_closed_loop, run_open_loop
from turbo_lab.core.errors import UsageError
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.metrics.definitions import dispatch_lag_s
from turbo_lab.metrics.summary import summarize
from turbo_lab.workload.conversation import Conversation
from turbo_lab.workload.request import Request

QUICK = Script(replies=(Reply(speech=Speech(ttft_s=0.01, gap_s=0.0)),))


def talk(name: str, turns: int = 3, *, think_s: float = 0.0, **more) -> Conversation:
    asks = tuple(
        Request(f"{name} asks {turn}", max_tokens=2, request_id=f"{name}{turn}",
                labels={"conversation": name, "turn": turn}, **more)
        for turn in range(turns)
    )  # fmt: skip
    return Conversation(asks, think_s=think_s)


def test_each_turn_holds_the_conversation_so_far_with_the_servers_replies():
    with MockServer(QUICK) as server:
        runs = run_closed_loop([talk("a"), talk("b")], base_url=server.base_url, concurrency=2)
        bodies = {e.request_id: e.body["messages"] for e in server.log}
    assert [r.request_id for r in runs] == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert bodies["a0"] == [{"role": "user", "content": "a asks 0"}]
    assert [m["role"] for m in bodies["a2"]] == ["user", "assistant"] * 2 + ["user"]
    assert [m["content"] for m in bodies["a2"]] == [
        "a asks 0", runs[0].text, "a asks 1", runs[1].text, "a asks 2",
    ]  # fmt: skip
    assert runs[0].text == " t0 t1", "the reply is the server's own"
    assert runs[4].labels == {"conversation": "b", "turn": 1}


def test_turns_never_overlap_and_think_time_passes_between_them():
    with MockServer(QUICK) as server:
        runs = run_open_loop(
            [talk("a", think_s=0.5), talk("b")], base_url=server.base_url, schedule_s=[0.0, 0.02]
        )
    first = runs[:3]
    for before, after in itertools.pairwise(first):
        assert after.scheduled_s == pytest.approx(before.closed_s + 0.5)
        assert after.sent_s >= before.closed_s + 0.5
        assert 0 <= dispatch_lag_s(after) < 2
    assert runs[3].sent_s < runs[2].sent_s, "the other conversation does not wait"


def test_completions_join_the_turns_as_text():
    with MockServer(QUICK) as server:
        run_closed_loop([talk("a", 2, endpoint="completions")], base_url=server.base_url,
                        concurrency=1)  # fmt: skip
        prompts = [e.body["prompt"] for e in server.log]
    assert prompts == ["a asks 0", "a asks 0 t0 t1\na asks 1"]


def test_a_failed_turn_ends_its_conversation_and_the_rest_is_told_apart():
    script = Script(replies=(Reply(status=500, match="a1"), *QUICK.replies))
    with MockServer(script) as server:
        runs = run_closed_loop([talk("a", 4), talk("b", 2)], base_url=server.base_url,
                               concurrency=1)  # fmt: skip
        assert [e.request_id for e in server.log] == ["a0", "a1", "b0", "b1"]
    assert len(runs) == 6 and runs[2].sent_s is None
    assert runs[3].error == f"{NOT_SENT}turn 2 of this conversation failed (HTTP 500)"
    found = summarize(runs)
    assert (found.attempted, found.succeeded) == (6, 3)
    assert found.failures["HTTP 500"] == 1 and sum(found.failures.values()) == 3


def test_a_warm_up_uses_no_turn_of_a_conversation():
    with MockServer(QUICK) as server:
        run_closed_loop([talk("a")], base_url=server.base_url, concurrency=1, warmup=2)
        texts = [str(e.body["messages"]) for e in server.log]
    assert len(texts) == 5 and all("asks" not in t for t in texts[:2])


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Conversation(()), "at least one turn"),
        (lambda: Conversation((Request("a"),), think_s=-1.0), "think_s"),
        (lambda: talk("a", 2).ask(1, []), "turn 1 needs the 1 replies"),
        (lambda: Conversation((Request([{"role": "user", "content": "x"}]),) * 2), "texts"),
    ],
)
def test_wrong_use_is_refused(make, word):
    with pytest.raises(UsageError, match=word):
        make()
