"""One good notebook, and for every rule one change that breaks exactly that rule."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from turbo_lab.course.hygiene import RULES
from turbo_lab.course.hygiene_structure import TAGS

PNG = base64.b64encode(b"picture").decode()
ABSTRACT = "中文摘要：本课先预测一个数字，再在自己的机器上测量它，最后比较两者并说明方法何时失效。"


@pytest.fixture
def broken(findings):
    return lambda **options: [finding.rule for finding in findings(**options)]


def code(source: str, *outputs: Any, tags: tuple[str, ...] = ()) -> Any:
    cell = new_code_cell(source, outputs=list(outputs))
    cell.metadata.tags = list(tags)
    return cell


def text(value: str) -> Any:
    return new_output("stream", name="stdout", text=value)


def find(book: Any, start: str) -> Any:
    return next(cell for cell in book.cells if cell.source.startswith(start))


def edit(start: str, **changes: Any):
    """Change one cell: its source, tags or outputs."""

    def change(book: Any) -> None:
        cell = find(book, start)
        if "source" in changes:
            cell.source = changes["source"]
        if "tags" in changes:
            cell.metadata.tags = list(changes["tags"])
        if "outputs" in changes:
            cell.outputs = list(changes["outputs"])

    return change


def add(*cells: Any):
    def change(book: Any) -> None:
        book.cells[-2:-2] = cells  # before the references: the order of sections stays

    return change


def remove(start: str):
    return lambda book: book.cells.remove(find(book, start))


def shown(kind: str, value: str) -> Any:
    return new_output("display_data", data={kind: value})


PARAMETERS = 'mode: str = "auto"  # a\neffort: str = "quick"  # b\n'
LONG = "\n".join(f"a_{i} = {i}" for i in range(31))
SEVEN = "\n".join(f"b_{i} = {i}" for i in range(7))

BEFORE = {
    "title without a question": ("title", edit("# 07", source="# 07 · A title")),
    "title with two questions": ("title", edit("# 07", source="# 07 · What? What is measured?")),
    "title unlike course.toml": ("title", edit("# 07", source="# 07 · What is weighed?")),
    "two top headings": ("title", add(new_markdown_cell("# Another?"))),
    "section missing": ("sections", remove("## Where it loses")),
    "sections in another order": ("sections", lambda b: b.cells.insert(2, b.cells.pop(9))),
    "no Chinese abstract": ("abstract", edit("## Overview", source="## Overview\n" + "word " * 25)),
    "only Chinese": ("abstract", edit("## Overview", source="## Overview\n" + ABSTRACT)),
    "a long Chinese text": (
        "abstract",
        edit("## Overview", source="## Overview\n" + "word " * 25 + "字" * 401),
    ),
    "other minutes": ("minutes", edit("## Before", source="## Before you start\n5 minutes.")),
    "no parameters cell": ("parameters", edit("mode:", tags=())),
    "two parameters cells": ("parameters", add(code("x: int = 1  # x", tags=("parameters",)))),
    "parameter without type": ("parameters", edit("mode:", source=PARAMETERS + "x = 1  # x")),
    "parameter without comment": ("parameters", edit("mode:", source=PARAMETERS + "x: int = 1")),
    "parameter not a scalar": ("parameters", edit("mode:", source=PARAMETERS + "x: set = {1}")),
    "no effort parameter": ("parameters", edit("mode:", source=PARAMETERS.split("\n")[0])),
    "eleven parameters": (
        "parameters",
        edit(
            "mode:",
            source=PARAMETERS + "\n".join(f"x{i}: int = 1  # x" for i in range(9)),
        ),
    ),
    "unknown tag": ("tags", edit("draw()", tags=("remove-cell",))),
    "a cell of 31 lines": ("code-length", add(code(LONG))),
    "a median above 6 lines": ("code-length", add(*(code(SEVEN) for _ in range(20)))),
    "three exercises": (
        "exercises",
        lambda b: [remove("answer_4")(b), remove('check("07.4"')(b)],
    ),
    "an exercise that is not checked": ("exercises", add(code("y = ...", tags=("exercise",)))),
    "an answer left in the stub": ("exercises", edit("answer_2", source="answer_2 = 3")),
    "a check of another notebook": (
        "exercises",
        edit('check("07.3"', source='check("06.3", answer_3)'),
    ),
    "two takeaways": ("takeaways", edit("## Takeaways", source="## Takeaways\n- one\n- two")),
    "an error output": (
        "errors",
        add(code("1/0", new_output("error", ename="E", evalue="v", traceback=[]))),
    ),
    "an SVG picture": ("output-kinds", add(code("svg()", shown("image/svg+xml", "<svg/>")))),
    "a JPEG picture": ("output-kinds", add(code("jpg()", shown("image/jpeg", PNG)))),
    "a script in HTML": ("output-kinds", add(code("h()", shown("text/html", "<script>")))),
    "a widget": (
        "output-kinds",
        add(code("w()", shown("application/vnd.jupyter.widget-view+json", "{}"))),
    ),
    "more than 300 KB": ("size", add(code("print()", text("x" * 300_000)))),
    "a path in an output": ("paths", add(code("p()", text("log: /var/log/server.txt")))),
    "a path in code": ("paths", add(code("open('/tmp/x')"))),
    "a Windows path": ("paths", add(new_markdown_cell(r"See C:\Users\me."))),
    "only two checked outputs": ("checked", edit("lab.compare", tags=())),
    "a checked output that is empty": (
        "checked",
        add(code("quiet()", tags=("nbval-check-output",))),
    ),
    "a checked output that is only a picture": (
        "checked",
        edit("draw()", tags=("nbval-check-output",)),
    ),
    "no figure": ("figure", edit("draw()", outputs=[text("no picture\n")])),
    "a caption that risks nothing": ("caption", edit("**Figure", source="**Figure 1.** A line.")),
    "an unknown claim in code": ("references", edit("references", source="references('no-claim')")),
    "an unknown claim in prose": ("references", add(new_markdown_cell("It is [claim:no-such]."))),
    "no claim": ("references", edit("references", source="print(1)")),
}  # fmt: skip


def set_kernel(book: Any) -> None:
    book.metadata.kernelspec.name = "conda-env"


def set_count(book: Any) -> None:
    find(book, "draw()").execution_count = None


def swap_counts(book: Any) -> None:
    find(book, "draw()").execution_count = 99


def edit_after(book: Any) -> None:
    find(book, "## Where").source += " Rarely."


def live_stamp(book: Any) -> None:
    book.metadata.turbo_lab.mode = "cpu"


def timestamps(book: Any) -> None:
    find(book, "draw()").metadata.execution = {"iopub.execute_input": "2026-01-01T00:00:00Z"}


def papermill(book: Any) -> None:
    book.metadata.papermill = {"duration": 1}


def widgets(book: Any) -> None:
    book.metadata.widgets = {}


AFTER = {
    "another kernelspec": ("kernel", set_kernel),
    "a cell that was not executed": ("executed", set_count),
    "a cell executed out of order": ("executed", swap_counts),
    "edited after the run": ("replayed", edit_after),
    "executed live": ("replayed", live_stamp),
    "timestamps": ("metadata", timestamps),
    "papermill metadata": ("metadata", papermill),
    "widget state": ("output-kinds", widgets),
}


def test_the_good_notebook_breaks_no_rule(broken):
    assert broken() == []


@pytest.mark.parametrize("name", BEFORE)
def test_each_change_breaks_exactly_its_rule(broken, name):
    rule, change = BEFORE[name]
    assert set(broken(before=change)) == {rule}


@pytest.mark.parametrize("name", AFTER)
def test_each_change_after_the_run_breaks_exactly_its_rule(broken, name):
    rule, change = AFTER[name]
    assert set(broken(after=change)) == {rule}


def test_every_rule_has_a_notebook_that_breaks_it():
    covered = {rule for rule, _ in (*BEFORE.values(), *AFTER.values())} | {"measured-number"}
    assert covered == {name for name, _ in RULES}


def test_allowed_things_stay_allowed(broken):
    cells = (
        code("1/0", new_output("error", ename="E", evalue="", traceback=[]),
             tags=("raises-exception",)),
        code("t()", shown("text/html", "<table><tr><td>1</td></tr></table>")),
        new_markdown_cell("POST /v1/completions, see https://example.org/usr/share/doc, /metrics."),
        new_markdown_cell("## An extra section\n```python\n# not a heading\n```"),
    )  # fmt: skip
    assert broken(before=add(*cells)) == []


def test_rules_about_course_toml_are_skipped_without_an_entry(broken):
    other = edit("## Before", source="## Before you start\n5 minutes.")
    assert broken(before=other, entry=None) == []


def test_findings_name_notebook_cell_and_rule(findings):
    (found,) = findings(before=edit("draw()", tags=("chek",)))
    assert str(found) == (
        "07_lesson.ipynb, cell 11: tags: tag 'chek' is not allowed. Did you mean 'check'? "
        f"Allowed: {', '.join(sorted(TAGS))}."
    )
