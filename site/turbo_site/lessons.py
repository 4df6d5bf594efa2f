"""A committed notebook, made ready for its page.

Nothing is executed and no output is changed. Added are: a line of facts below the title, an alt
text for each figure, and a folded solution below each exercise.
"""

from __future__ import annotations

import copy
import html
import inspect
import re
from collections.abc import Mapping
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.course.captions import alt_text
from turbo_lab.course.exercises import find_solution
from turbo_lab.course.manifest import NotebookEntry
from turbo_lab.course.notebook_file import cell_tags

_CHECK = re.compile(r"\bcheck\(\s*[\"'](\d\d\.\d+)[\"']")
_REVEAL = re.compile(r"^\s*reveal\(", re.MULTILINE)
_CLAIM = re.compile(r"\[claim:\s*([^\]\s]+)\s*\]")
ELSEWHERE = "open-a-notebook-elsewhere"  # the section of the course page that explains the links
NEEDS = {"engine": "a live run starts a real server", "gpu": "needs a GPU", "root": "needs root"}


def lesson_page(
    notebook: Any, entry: NotebookEntry, *, held: str, launch: Mapping[str, str], download: str
) -> Any:
    """A copy of ``notebook`` for the site.

    Args:
        notebook: As ``read_notebook`` gives it; stays as it is.
        entry: Its row in course.toml.
        held: How many predictions held in the record, in words; empty without a record.
        launch: Label to address, for each place where the notebook can be opened.
        download: Address of the notebook's file, relative to the page.
    """
    page = copy.deepcopy(notebook)
    page.metadata.pop("turbo_lab", None)
    cells = []
    for index, cell in enumerate(page.cells):
        if cell.cell_type == "markdown":
            cell.source = _CLAIM.sub(r"[\[\1\]](#claim-\1)", cell.source)
        else:
            _describe_figure(page.cells, index)
            _fold_reveal(cell)
        cells.append(cell)
        cells += [_solution_cell(name) for name in _exercises(cell) if _has_solution(name)]
    facts = facts_bar(entry, held=held, launch=launch, download=download)
    title, _, rest = cells[0].source.partition("\n")
    cells[0].source = f"{title}\n\n{facts}\n\n{rest}"
    page.cells = cells
    return page


def _describe_figure(cells: list[Any], index: int) -> None:
    """Put the alt text where myst-nb reads it: the cell's own options."""
    cell = cells[index]
    if any("image/png" in output.get("data", {}) for output in cell.outputs):
        if (alt := alt_text(cells, index)) is None:
            raise UsageError(f"cell {index} shows a figure without a caption: nothing to read out")
        cell.metadata.setdefault("mystnb", {})["image"] = {"alt": alt}


def _fold_reveal(cell: Any) -> None:
    if _REVEAL.search(cell.source):
        cell.metadata["tags"] = [*cell_tags(cell), "hide-output"]
        prompts = {"code_prompt_show": "Show the solution", "code_prompt_hide": "Hide the solution"}
        cell.metadata.setdefault("mystnb", {}).update(prompts)


def _exercises(cell: Any) -> list[str]:
    if cell.cell_type != "code" or "exercise" not in cell_tags(cell):
        return []
    return list(dict.fromkeys(_CHECK.findall(cell.source)))


def _has_solution(name: str) -> bool:
    """False where a teacher took the solutions out of this copy."""
    try:
        find_solution(name)
    except UsageError:
        return False
    return True


def _solution_cell(name: str) -> Any:
    from nbformat.v4 import new_markdown_cell

    code = inspect.getsource(find_solution(name)).rstrip()
    return new_markdown_cell(
        f'<details class="lab-solution">\n<summary>Solution {name}</summary>\n\n'
        f"```python\n{code}\n```\n\n</details>",
        id=f"solution-{name.replace('.', '-')}",
    )


def facts_bar(entry: NotebookEntry, *, held: str, launch: Mapping[str, str], download: str) -> str:
    """The line below the title: minutes, needs, outcome, code, and where to open the notebook."""
    needs = " and ".join(NEEDS[need] for need in entry.needs) or "no server needed"
    facts = [f"{entry.minutes:g} min live", needs, f"code: <code>{entry.package}</code>"]
    if held:
        facts.insert(2, f'<a href="../results.html#results-nb{entry.id}">{html.escape(held)}</a>')
    items = "".join(f"<li>{fact}</li>" for fact in facts)
    opens = "".join(
        f'<li><a href="{html.escape(url, quote=True)}">{label}</a></li>'
        for label, url in launch.items()
    )
    return (
        f'<div class="lab-facts"><ul>{items}</ul>'
        f'<ul class="lab-launch" aria-label="Open this notebook">{opens}'
        f'<li><a href="{download}" download>Download</a></li>'
        f'<li><a href="../course.html#{ELSEWHERE}">What each of these does</a></li></ul></div>'
    )
