"""Rules about what the prose claims: captions, typed-in measurements, references."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from turbo_lab.core.errors import UsageError
from turbo_lab.course.captions import find_caption
from turbo_lab.course.subject import Problem, Subject
from turbo_lab.records.schema import Record

NUMBER = re.compile(r"(?<![\w.,])(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?![\w]*\.ipynb)")
# Seconds in ms or us, bytes in binary or decimal units, fractions in percent.
SCALES = (1.0, 1e3, 1e6, 1e2, 1e-3, 1e-6, 1e-9, 2**-10, 2**-20, 2**-30)
CLAIM_IN_PROSE = re.compile(r"\[claim:\s*([^\]\s]+)\s*\]")
CLAIM_IN_CODE = re.compile(
    r"\b(?:references|claim)\(([^)]*)\)|\bpublished\s*=\s*([\"'][^\"']+[\"'])"
)


def figure(subject: Subject) -> Iterator[Problem]:
    """At least one figure."""
    if not list(_figures(subject)):
        yield Problem("no figure (a PNG output) was found")


def caption(subject: Subject) -> Iterator[Problem]:
    """Each figure has a caption that says what would refute it.

    The caption is the next Markdown cell, or Markdown shown by the same cell or the next one
    (``lab.text``, where it quotes measured numbers).
    """
    for index in _figures(subject):
        if find_caption(subject.notebook.cells, index) is None:
            yield Problem("the figure has no caption that says what would refute it", index)


def _figures(subject: Subject) -> Iterator[int]:
    for index, cell in subject.cells("code"):
        if any("image/png" in output.get("data", {}) for output in cell.outputs):
            yield index


def measured_number(subject: Subject) -> Iterator[Problem]:
    """No number in Markdown equals a measured value: such text is rendered with ``lab.text``.

    Compared after rounding to the digits typed, in the usual unit scales, from three significant
    digits on (four for single samples and observations, of which there are many). Numbers that a
    code cell declares, years, powers of two (sizes and settings) and predictions that are exact by
    formula are not measurements.
    """
    values = [pair for record in subject.records for pair in _measured(record)]
    if not values:
        return
    code = "\n".join(cell.source for _, cell in subject.cells("code"))
    declared = {_plain(token) for token in NUMBER.findall(code.replace("_", ""))}
    for index, cell in subject.cells("markdown"):
        text = re.sub(r"https?://\S+|\]\([^)]*\)", " ", cell.source)
        for token in NUMBER.findall(text):
            if _plain(token) in declared or re.fullmatch(r"(19|20)\d\d", token):
                continue
            if _is_power_of_two(_plain(token)):
                continue
            if name := _match(token, values):
                yield Problem(
                    f"{token} looks like the measured {name}; quote it with lab.text(...)", index
                )


def _plain(token: str) -> float:
    return float(token.replace(",", ""))


def _is_power_of_two(value: float) -> bool:
    return value >= 1 and math.log2(value).is_integer()


def _digits(token: str) -> int:
    """Significant digits; zeros at the end of a whole number do not count."""
    digits = token.replace(",", "")
    if "." not in digits:
        digits = digits.rstrip("0")
    return len(digits.replace(".", "").lstrip("0"))


def _match(token: str, values: list[tuple[str, float, int]]) -> str | None:
    typed, digits = _plain(token), _digits(token)
    for name, value, least in values:
        if digits < least or value == 0:
            continue
        for scale in SCALES:
            if float(f"{abs(value) * scale:.{digits - 1}e}") == typed:
                return name
    return None


def _measured(record: Record) -> Iterator[tuple[str, float, int]]:
    """(name, value, significant digits from which a match counts) of everything measured."""
    exact = {p.value for p in record.predictions if p.tolerance == 0}
    for measurement in record.measurements:
        if measurement.value is not None and measurement.value not in exact:
            yield measurement.name, measurement.value, 3
        for sample in measurement.samples:
            if sample is not None and sample not in exact:
                yield f"{measurement.name} (a sample)", sample, 4
    for row in record.comparison:
        if row.ratio is not None and row.ratio != 1:
            yield f"{row.name} (the ratio)", row.ratio, 3
    for observation in record.observations:
        for value in _floats(observation.data):
            yield f"{observation.name} (observed)", value, 4


def _floats(data: Any) -> Iterator[float]:
    """All numbers with a fraction in nested data; whole ones are counts and too common."""
    if isinstance(data, float) and not data.is_integer():
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from _floats(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _floats(value)


def references(subject: Subject) -> Iterator[Problem]:
    """At least one claim is referenced, and each id exists in ``data/claims``."""
    from turbo_lab.course.claims import claim

    found = list(_claim_ids(subject))
    if not found:
        yield Problem("no claim is referenced: use references('id') or [claim:id]")
    for index, claim_id in found:
        try:
            claim(claim_id, folder=subject.claims)
        except UsageError as error:
            yield Problem(str(error), index)


def _claim_ids(subject: Subject) -> Iterator[tuple[int, str]]:
    for index, cell in enumerate(subject.notebook.cells):
        if cell.cell_type == "markdown":
            for claim_id in CLAIM_IN_PROSE.findall(cell.source):
                yield index, claim_id
        elif cell.cell_type == "code":
            for groups in CLAIM_IN_CODE.findall(cell.source):
                for claim_id in re.findall(r"[\"']([^\"']+)[\"']", "".join(groups)):
                    yield index, claim_id
