"""A stream played by the mock server arrives as it was written down."""

from __future__ import annotations

import pytest

from turbo_lab.client.stream import send_one
from turbo_lab.core.errors import UsageError
from turbo_lab.engines.mock_replay import reply_of
from turbo_lab.engines.mock_script import Script
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.metrics.summary import summarize
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.request import Request

TRIES = 8
W1 = Timeline(
    sent_s=5.0, status_code=200, closed_s=5.2, finish_reason="length", saw_done=True,
    usage={"completion_tokens": 5},
    chunks=((5.1, 0, "role"), (5.1, 1, "content"), (5.14, 2, "content"), (5.18, 2, "content"),
            (5.18, None, "usage"), (5.2, None, "done")),
)  # fmt: skip


def test_steps_hold_the_times() -> None:
    after_s = [step.after_s for step in reply_of(W1).steps]
    assert after_s == pytest.approx([0.1, 0.0, 0.04, 0.04, 0.0, 0.02])


def test_the_client_reads_what_was_played() -> None:
    """The times are the mock's own, late as it may have been woken up.

    A client that a busy machine lets wait hears several chunks at once; then it is played again.
    """
    with MockServer(Script(replies=(reply_of(W1, texts=("a", "bc", "de")),))) as mock:
        for _ in range(TRIES):
            got = send_one(Request("hello"), base_url=mock.base_url)
            seen = [c.t_s for c in got.visible()]
            if len(set(seen)) == 3:
                break
        entry = mock.log[-1]
    assert got.text == "abcde" and got.finish_reason == "length" and got.saw_done
    assert [(c.kind, c.tokens) for c in got.events()[:4]] == [
        ("role", 0), ("content", 1), ("content", 2), ("content", 2),
    ]  # fmt: skip
    found = summarize([got])
    assert found.verdict == "ok" and found.output_tokens.value == 5
    assert found.ttft_s.median >= 0.1
    sent = [t - entry.received_s for t in entry.content_s()]
    assert all(t > due - 1e-3 for t, due in zip(sent, (0.1, 0.14, 0.18), strict=True))
    assert found.tpot_s.median == pytest.approx((seen[-1] - seen[0]) / 4)


@pytest.mark.parametrize(
    ("chunk", "message"), [((0.1, None, "content"), "token count"), ((0.1, None, "error"), "error")]
)
def test_what_cannot_be_played_is_refused(chunk: tuple, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reply_of(Timeline(sent_s=0.0, chunks=(chunk,)))
