"""The lesson inside a real kernel: replay gives equal outputs, and a line is shown once."""

from __future__ import annotations

import json

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = (
    "from turbo_lab.course import check, reveal, start_lesson\n"
    "lab = start_lesson('01', mode='replay', records=RECORDS)",
    "lab.predict('pool_tokens', 23296, unit='tokens', tolerance=0.0)",
    "pool = lab.measure('pool_tokens', lambda: 1 / 0, unit='tokens')\npool",
    "pool",
    "lab.compare()",
    "lab.text('The pool holds {pool_tokens:,} tokens.')",
    "check('01.1', ...)\nreveal('01.1')",
)


def run(records):
    book = nbformat.v4.new_notebook()
    sources = (CELLS[0].replace("RECORDS", repr(str(records))), *CELLS[1:])
    book.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    return [[dict(output) for output in cell.outputs] for cell in book.cells]


@pytest.mark.usefixtures("replayed")
def test_replay_in_a_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("TURBO_LAB_PROGRESS", str(tmp_path / "progress.json"))
    outputs = run(tmp_path / "records")
    predicted, measured, later, table, prose, exercise = outputs[1:]
    assert [o["text"] for o in predicted] == ["predicted pool_tokens: 23,296 tokens, exact\n"]
    assert len(measured) == 1 and "23,296 tokens (recorded on " in measured[0]["text"]
    assert later[0]["text"] == measured[0]["text"]
    assert set(table[0]["data"]) >= {"text/plain", "text/html"}
    assert prose[0]["data"]["text/markdown"] == "The pool holds 23,296 tokens."
    assert exercise[0]["text"].startswith("01.1: not attempted\n# 01.1: ")
    assert json.dumps(run(tmp_path / "records")) == json.dumps(outputs)
