"""Choices and gaps are read as told; replies part where their tokens do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import EngineError, UnmeasuredError, UsageError
from turbo_lab.experiment.company import (
    Apart,
    Choice,
    choices,
    compare,
    from_rows,
    largest_shift,
    parting,
    read_choices,
    shift_ratio,
    to_rows,
)
from turbo_lab.workload.request import Request

TOLD = {
    "tokens": ["a", "b"],
    "token_logprobs": [-0.1, -1.0],
    "top_logprobs": [{"a": -0.1, "x": -2.1}, {"y": -1.0, "b": -1.0}],
}


def reply(*tokens: str, shift: float = 0.0) -> tuple[Choice, ...]:
    return tuple(Choice(t, -1.0 - shift, 0.5) for t in tokens)


def test_gap_to_the_best_other_token() -> None:
    first, second = read_choices(TOLD)
    assert first == Choice("a", -0.1, 2.0) and second.gap == 0, "a tie"
    alone = {"tokens": ["a"], "token_logprobs": [0.0], "top_logprobs": [{"a": 0.0}]}
    with pytest.raises(EngineError, match="no other token"):
        read_choices(alone)


@given(st.lists(st.sampled_from("ab"), max_size=6), st.lists(st.sampled_from("ab"), max_size=6))
def test_parting_is_the_first_difference(one: list[str], other: list[str]) -> None:
    at = parting(reply(*one), reply(*other))
    if at is None:
        assert one == other
    else:
        assert one[:at] == other[:at] and one[at : at + 1] != other[at : at + 1]


def test_shift_is_taken_before_the_replies_part() -> None:
    assert largest_shift(reply("a", "b"), reply("a", "b", shift=0.25)) == 0.25
    one, other = reply("a", "b"), (*reply("a", shift=0.1), *reply("c", shift=9.0))
    assert largest_shift(one, other) == pytest.approx(0.1)
    assert largest_shift((), ()) == 0


def test_changes_are_clear_where_the_gap_is_beyond_twice_the_shift() -> None:
    base = reply("a", "b")
    near = (Choice("a", -1.3, 0.5), Choice("c", -1.0, 0.5))  # shifted by 0.3, gap there 0.5
    far = (Choice("a", -1.1, 0.5), Choice("c", -1.0, 0.5))
    found = compare([base, base, base], [base, near])
    assert (found.compared, found.changed, found.clear_changes) == (2, 1, 0)
    assert compare([base], [far]).clear_changes == 1
    with pytest.raises(UnmeasuredError, match="no two sets"):
        compare([], [base])


def test_shift_ratio_needs_a_shift() -> None:
    small, large, none = Apart(1, (), 0.001), Apart(1, (), 0.5), Apart(1, (), 0.0)
    assert shift_ratio(small, to=large) == pytest.approx(0.002)
    with pytest.raises(UnmeasuredError, match="moved no"):
        shift_ratio(small, to=none)


def test_rows_bring_replies_back() -> None:
    sets = [reply("a", "b"), reply("c")]
    assert from_rows(json.loads(json.dumps(to_rows(sets)))) == sets


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)  # type: ignore[attr-defined]
        answer = json.dumps({"choices": [{"logprobs": TOLD}]}).encode()
        self.send_response(400 if body["prompt"] == "bad" else 200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.bodies = []  # type: ignore[attr-defined]
    threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield httpd
    httpd.shutdown()
    httpd.server_close()


def test_what_is_asked_and_in_which_order(server: ThreadingHTTPServer) -> None:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    asked = [Request(f"p{i}", max_tokens=2, endpoint="completions") for i in range(3)]
    found = choices(asked, base_url=url, concurrency=3)
    assert [len(r) for r in found] == [2, 2, 2]
    for body in server.bodies:  # type: ignore[attr-defined]
        assert body["stream"] is False and body["logprobs"] == 2 and body["temperature"] == 0
    with pytest.raises(EngineError, match="400"):
        choices([Request("bad", endpoint="completions")], base_url=url, concurrency=1)
    with pytest.raises(UsageError, match="completions"):
        choices([Request("chat")], base_url=url, concurrency=1)
