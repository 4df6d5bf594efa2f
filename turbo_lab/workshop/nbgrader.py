"""Exercise cells in nbgrader's notebook format (metadata schema version 3).

nbgrader knows a cell by its metadata key ``nbgrader``: the student's cell is a *solution*, the
graded cell is locked and passes when it raises nothing. Source: nbgrader's documentation, "Format
of the metadata" (schema_version 3: grade, grade_id, locked, points, schema_version, solution, task;
``cell_type`` on graded and locked cells).
"""

from __future__ import annotations

import ast
from typing import Any

from turbo_lab.core.errors import ConfigError
from turbo_lab.workshop.submissions import exercises_in

KEY = "nbgrader"
SCHEMA_VERSION = 3
POINTS = 1
CONFIG_NAME = "nbgrader_config.py"
# The stubs of the course stay as they are: without ClearSolutions, which would empty every
# solution cell that has no solution region.
CONFIG = """c = get_config()  # noqa: F821 (nbgrader gives it)
c.CourseDirectory.course_id = "turbo-lab"
c.GenerateAssignment.preprocessors = [
    f"nbgrader.preprocessors.{name}"
    for name in (
        "IncludeHeaderFooter",
        "LockCells",
        "ClearOutput",
        "CheckCellMetadata",
        "ComputeChecksums",
        "SaveCells",
        "CheckCellMetadata",
    )
]
"""


def as_assignment(notebook: Any) -> Any:
    """The notebook with metadata on each exercise cell and a locked, graded cell behind it."""
    import nbformat

    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        for exercise_id in exercises_in(cell.source) if cell.cell_type == "code" else ():
            cell.metadata[KEY] = solution_metadata(exercise_id)
            graded = nbformat.v4.new_code_cell(graded_source(cell.source, exercise_id))
            graded.id = f"graded-{exercise_id.replace('.', '-')}"
            graded.metadata[KEY] = graded_metadata(exercise_id)
            cells.append(graded)
    notebook.cells = cells
    return notebook


def solution_metadata(exercise_id: str) -> dict[str, Any]:
    """Metadata of the cell that the student fills in."""
    return {
        "grade": False,
        "grade_id": f"exercise-{exercise_id.replace('.', '-')}",
        "locked": False,
        "schema_version": SCHEMA_VERSION,
        "solution": True,
        "task": False,
    }


def graded_metadata(exercise_id: str) -> dict[str, Any]:
    """Metadata of the locked cell that gives the point."""
    return {
        "cell_type": "code",
        "grade": True,
        "grade_id": f"graded-{exercise_id.replace('.', '-')}",
        "locked": True,
        "points": POINTS,
        "schema_version": SCHEMA_VERSION,
        "solution": False,
        "task": False,
    }


def graded_source(source: str, exercise_id: str) -> str:
    """Source of the graded cell: the same answer as in the student's ``check``, but it may fail.

    Raises ConfigError when the cell hands in no expression.
    """
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "check"
            and len(node.args) == 2
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value == exercise_id
        ):
            return (
                "from turbo_lab.course import require\n\n"
                f'require("{exercise_id}", {ast.unparse(node.args[1])})'
            )
    raise ConfigError(f'exercise {exercise_id}: its cell holds no check("{exercise_id}", answer)')
