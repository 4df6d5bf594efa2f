"""The quality guard: equal texts, and how far the reference parts from itself."""

from __future__ import annotations

import pytest

from turbo_lab.engines.mock_script import Reply, Script, Speech, event, payload
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment.quality import agreement, guard


def test_agreement_counts_equal_replies_and_where_others_part():
    found = agreement(["abcd", "x", None, ""], ["abXd", "x", "y", ""])
    assert (found.compared, found.equal) == (3, 2)
    assert found.divergence == pytest.approx(0.5) and found.equal_share == pytest.approx(2 / 3)
    assert agreement([None], ["a"]).equal_share is None
    assert agreement([], []).equal_share is None


def saying(text: str) -> Script:
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    steps = (event(payload(text, finish="stop")), event(payload(usage=usage)), event("[DONE]"))
    return Script(replies=(Reply(steps=steps),))


def test_guard_passes_equal_servers_and_stops_another_text():
    names = {"reference_model": "m", "candidate_model": "m"}
    with MockServer(saying("four")) as a, MockServer(saying("four")) as b:
        assert guard(a.base_url, b.base_url, **names).ok is True
    with MockServer(saying("four")) as a, MockServer(saying("five")) as b:
        found = guard(a.base_url, b.base_url, **names)
    assert found.ok is False and found.reference.equal_share == 1.0
    dead = Script(replies=(Reply(status=500, speech=Speech()),))
    with MockServer(saying("four")) as a, MockServer(dead) as b:
        assert guard(a.base_url, b.base_url, **names).ok is None
