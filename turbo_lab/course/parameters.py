"""The parameters cell: what a notebook accepts, and the refusal of what it does not."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import ConfigError, UsageError, did_you_mean

if TYPE_CHECKING:
    from nbformat import NotebookNode

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Parameter:
    """One line of the parameters cell. ``annotation`` is empty when the line has no type."""

    name: str
    annotation: str
    default: Scalar
    comment: str


def parameter_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """All code cells tagged ``parameters``."""
    return [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", [])
    ]


def read_parameters(notebook: NotebookNode) -> dict[str, Parameter]:
    """Parameters that the notebook declares, by name; empty without a parameters cell.

    Raises ConfigError when the cell holds something else than ``name: type = scalar``.
    """
    cells = parameter_cells(notebook)
    return parse_parameters(cells[0].source) if cells else {}


def parse_parameters(source: str) -> dict[str, Parameter]:
    """Parse the source of a parameters cell. Raises ConfigError naming the line."""
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise ConfigError(f"The parameters cell is not Python: {error}") from error
    lines = source.splitlines()
    found: dict[str, Parameter] = {}
    for node in body:
        parameter = _parameter(node, lines[node.end_lineno - 1 if node.end_lineno else 0])
        if parameter is None:
            raise ConfigError(
                f"The parameters cell has a line that is not 'name: type = scalar': "
                f"{ast.unparse(node)!r}"
            )
        found[parameter.name] = parameter
    return found


def _parameter(node: ast.stmt, line: str) -> Parameter | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        name, annotation = node.target.id, ast.unparse(node.annotation)
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name, annotation = node.targets[0].id, ""
    else:
        return None
    try:
        default = ast.literal_eval(node.value)
    except ValueError:
        return None
    if not isinstance(default, str | int | float | bool | None):
        return None
    rest = line.encode()[node.end_col_offset or 0 :].decode()  # the offset counts bytes
    comment = rest.strip().lstrip("#").strip()
    return Parameter(name, annotation, default, comment)


def check_parameters(
    given: Mapping[str, Any], *, declared: Mapping[str, Parameter], notebook: str
) -> None:
    """Refuse parameters that the notebook does not declare, or of another type.

    papermill alone would only warn, and the run would silently use the default.
    Raises UsageError naming the parameter, the notebook and what is allowed.
    """
    for name, value in given.items():
        if name not in declared:
            if not declared:
                raise UsageError(f"{notebook} has no parameters cell, so {name!r} cannot be set.")
            hint = did_you_mean(name, list(declared))
            raise UsageError(f"{notebook} has no parameter {name!r}.{hint}")
        if not _fits(value, declared[name].annotation):
            raise UsageError(
                f"{notebook}: {name} is {value!r}, but the notebook declares "
                f"{name}: {declared[name].annotation}."
            )


def _fits(value: Any, annotation: str) -> bool:
    kinds = [part.strip() for part in annotation.split("|")]
    known = {"str": str, "int": int, "float": (int, float), "bool": bool, "None": type(None)}
    if not all(kind in known for kind in kinds):
        return True  # a Literal or an alias: the notebook's own code checks it
    return any(
        isinstance(value, known[kind]) and (kind == "bool" or not isinstance(value, bool))
        for kind in kinds
    )


def parse_assignments(assignments: Sequence[str]) -> dict[str, Scalar]:
    """Turn ``["concurrency=4", "name=x"]`` of the command line into values.

    Numbers, true, false and null are read as such, everything else as text.
    Raises UsageError for an entry without ``=``.
    """
    words = {"true": True, "false": False, "null": None, "none": None}
    values: dict[str, Scalar] = {}
    for text in assignments:
        name, equals, raw = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise UsageError(f"{text!r} is not name=value, e.g. -p concurrency=4")
        raw = raw.strip()
        try:
            value = words[raw.lower()] if raw.lower() in words else ast.literal_eval(raw)
        except (ValueError, SyntaxError):
            value = raw
        values[name.strip()] = value if isinstance(value, str | int | float | None) else raw
    return values
