from __future__ import annotations

import io

from rich.console import Console

from turbo_lab.course.progress import Bars, Lines, choose_progress, predictions_text
from turbo_lab.course.rundir import NotebookResult


def result(**more) -> NotebookResult:
    return NotebookResult(**{"id": "00", "title": "A [b]", "status": "passed", **more})


def play(progress) -> None:
    progress.begin(["00 A [b]", "01 C"])
    progress.cell(0, 0, 3)
    progress.cell(0, 2, 3)
    progress.end_notebook(0, result(seconds=1.25))
    progress.close()


def test_lines_say_start_and_end_without_flooding_a_log():
    stream = io.StringIO()
    play(Lines(Console(file=stream), every_s=30))
    assert stream.getvalue() == "00 A [b]: 0 of 3 cells\n00 A [b]: passed after 1.2 s\n"


def test_lines_report_again_when_the_last_line_is_old():
    stream = io.StringIO()
    play(Lines(Console(file=stream), every_s=0))
    assert "2 of 3 cells" in stream.getvalue()


def test_bars_count_cells_in_a_terminal():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=90)
    shown = choose_progress(console)
    assert isinstance(shown, Bars)
    play(shown)
    assert "00 A [b]" in stream.getvalue() and "2/3" in stream.getvalue()
    assert isinstance(choose_progress(Console(file=io.StringIO())), Lines)


def test_predictions_are_never_invented():
    assert predictions_text(result()) == "none recorded"
    assert predictions_text(result(predictions_met=2, predictions_total=3)) == "2 of 3"
