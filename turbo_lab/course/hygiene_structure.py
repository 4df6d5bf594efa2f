"""Rules about a notebook's shape: title, sections, parameters, tags, length, exercises."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

from turbo_lab.core.errors import ConfigError, did_you_mean
from turbo_lab.course.notebook_file import cell_tags
from turbo_lab.course.parameters import parameter_cells, parse_parameters
from turbo_lab.course.subject import Problem, Subject

SECTIONS = (
    "Overview", "Before you start", "Setup", "Predict", "Measure", "Compare", "Where it loses",
    "Exercises", "Takeaways", "References",
)  # fmt: skip
TAGS = (
    "parameters", "nbval-check-output", "nbval-ignore-output", "nbval-skip", "raises-exception",
    "hide-input", "exercise", "check", "gpu", "slow",
)  # fmt: skip
MAX_PARAMETERS = 10
MEDIAN_LINES, MAX_LINES = 6, 30
MIN_EXERCISES, MAX_EXERCISES = 4, 6
TAKEAWAYS = 3
CHINESE = re.compile(r"[\u4e00-\u9fff]")
MIN_CHINESE, MAX_CHINESE = 20, 400
MIN_ENGLISH_WORDS = 20


def title(subject: Subject) -> Iterator[Problem]:
    """The first cell holds the only ``#`` heading, and it asks one question."""
    tops = [heading for heading in subject.headings() if heading.level == 1]
    if len(tops) != 1 or tops[0].cell != 0:
        yield Problem(f"one '# ' heading is wanted, in the first cell; found {len(tops)}")
        return
    text = tops[0].text
    if text.count("?") != 1 or not text.endswith("?"):
        yield Problem(f"the title must ask one question, found {text!r}", 0)
    elif subject.entry and not text.endswith(subject.entry.question):
        yield Problem(f"the title must end with course.toml's {subject.entry.question!r}", 0)


def sections(subject: Subject) -> Iterator[Problem]:
    """All sections exist, in order."""
    names = [h.text.lower() for h in subject.headings() if h.level == 2]
    position = -1
    for wanted in SECTIONS:
        places = [i for i, name in enumerate(names) if name.startswith(wanted.lower())]
        if not places:
            yield Problem(f"section '## {wanted}' is missing")
        elif places[0] < position:
            yield Problem(f"section '## {wanted}' stands too early; order: {', '.join(SECTIONS)}")
        else:
            position = places[0]


def abstract(subject: Subject) -> Iterator[Problem]:
    """The overview is in English and has a short Chinese abstract."""
    text = subject.section("Overview")
    if not text:
        return  # rule sections speaks
    chinese = len(CHINESE.findall(text))
    words = len(re.findall(r"[A-Za-z]{2,}", text))
    if words < MIN_ENGLISH_WORDS:
        yield Problem(f"the overview has {words} English words, {MIN_ENGLISH_WORDS} are wanted")
    if not MIN_CHINESE <= chinese <= MAX_CHINESE:
        yield Problem(
            f"the Chinese abstract in the overview has {chinese} characters, "
            f"{MIN_CHINESE} to {MAX_CHINESE} are wanted"
        )


def minutes(subject: Subject) -> Iterator[Problem]:
    """``Before you start`` states the minutes of course.toml."""
    if subject.entry is None or not (text := subject.section("Before you start")):
        return
    stated = re.findall(r"(\d+(?:\.\d+)?)\s*(?:min\b|minutes?\b)", text)
    if f"{subject.entry.minutes:g}" not in stated:
        yield Problem(
            f"'Before you start' must state course.toml's {subject.entry.minutes:g} minutes, "
            f"found {', '.join(stated) or 'none'}"
        )


def parameters(subject: Subject) -> Iterator[Problem]:
    """One parameters cell: typed, commented, mode and effort, at most ten scalars."""
    cells = parameter_cells(subject.notebook)
    if len(cells) != 1:
        yield Problem(f"one cell tagged 'parameters' is wanted, found {len(cells)}")
        return
    index = subject.notebook.cells.index(cells[0])
    try:
        found = parse_parameters(cells[0].source)
    except ConfigError as error:
        yield Problem(str(error), index)
        return
    if len(found) > MAX_PARAMETERS:
        yield Problem(f"{len(found)} parameters, {MAX_PARAMETERS} at most", index)
    for name in ("mode", "effort"):
        if name not in found:
            yield Problem(f"parameter {name!r} is missing", index)
    for parameter in found.values():
        if not parameter.annotation:
            yield Problem(f"parameter {parameter.name!r} has no type", index)
        if not parameter.comment:
            yield Problem(f"parameter {parameter.name!r} has no comment on its line", index)


def tags(subject: Subject) -> Iterator[Problem]:
    """Only tags of the closed list."""
    for index, cell in enumerate(subject.notebook.cells):
        for tag in cell_tags(cell):
            if tag not in TAGS:
                yield Problem(f"tag {tag!r} is not allowed.{did_you_mean(tag, list(TAGS))}", index)


def code_length(subject: Subject) -> Iterator[Problem]:
    """Code cells: median 6 lines or fewer, 30 at most (blank lines not counted)."""
    lengths = {
        index: sum(1 for line in cell.source.splitlines() if line.strip())
        for index, cell in subject.cells("code")
    }
    for index, lines in lengths.items():
        if lines > MAX_LINES:
            yield Problem(f"{lines} lines of code, {MAX_LINES} at most", index)
    if lengths and (median := statistics.median(lengths.values())) > MEDIAN_LINES:
        yield Problem(f"the median code cell has {median:g} lines, {MEDIAN_LINES} at most")


def exercises(subject: Subject) -> Iterator[Problem]:
    """Four to six exercises: a stub tagged ``exercise``, and a ``check("NN.k", ...)`` for each."""
    stubs = [i for i, cell in subject.cells("code") if "exercise" in cell_tags(cell)]
    source = "\n".join(cell.source for _, cell in subject.cells("code"))
    checks = dict.fromkeys(re.findall(r"\bcheck\(\s*[\"']([^\"']+)[\"']", source))
    if not MIN_EXERCISES <= len(checks) <= MAX_EXERCISES:
        yield Problem(
            f"{len(checks)} exercises are checked, {MIN_EXERCISES} to {MAX_EXERCISES} are wanted"
        )
    if len(stubs) != len(checks):
        yield Problem(f"{len(stubs)} cells are tagged 'exercise', {len(checks)} are checked")
    for index in stubs:
        if "..." not in subject.notebook.cells[index].source:
            yield Problem("an exercise cell must hold the stub '...', not an answer", index)
    number = subject.path.name[:2]
    for name in checks:
        if not re.fullmatch(rf"{number}\.\d+", name):
            yield Problem(f"check({name!r}) does not belong to notebook {number}")


def takeaways(subject: Subject) -> Iterator[Problem]:
    """Three takeaways, as a list."""
    text = subject.section("Takeaways")
    items = re.findall(r"^(?:[-*]|\d+\.)\s+\S", text, flags=re.MULTILINE)
    if text and len(items) != TAKEAWAYS:
        yield Problem(f"'Takeaways' has {len(items)} list items, {TAKEAWAYS} are wanted")
