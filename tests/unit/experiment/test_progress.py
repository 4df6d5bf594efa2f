"""Live progress: a bar where it can be redrawn, plain lines in a log."""

from __future__ import annotations

import io

from rich.console import Console

from turbo_lab.experiment.progress import Bar, Lines, choose_progress


def play(progress, count: int = 3) -> None:
    progress.say("server: [mock] 1.0")
    progress.begin(count)
    for index in range(count):
        progress.step(failed=index == 1)
    progress.end()


def test_a_terminal_and_jupyter_get_one_bar_that_counts_failures():
    for kind in ({"force_terminal": True}, {"force_jupyter": True}):
        assert isinstance(choose_progress(Console(file=io.StringIO(), width=100, **kind)), Bar)
    stream = io.StringIO()
    play(choose_progress(Console(file=stream, force_terminal=True, width=100)))
    assert "3/3" in stream.getvalue() and "1 failed" in stream.getvalue()


def test_a_log_gets_few_plain_lines():
    stream = io.StringIO()
    shown = choose_progress(Console(file=stream, width=40))
    assert isinstance(shown, Lines) and not isinstance(shown, Bar)
    play(shown, 500)
    lines = stream.getvalue().splitlines()
    assert lines == ["server: [mock] 1.0", "500 of 500 requests, 1 failed, 0 s"]


def test_an_old_line_is_followed_by_another():
    stream = io.StringIO()
    play(Lines(Console(file=stream), every_s=0.0))
    assert stream.getvalue().count("of 3 requests") == 4
