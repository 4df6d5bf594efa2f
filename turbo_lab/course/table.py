"""The predicted-measured-published table, as plain text, HTML, Markdown or a pandas frame."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turbo_lab.course.display import format_allowed, format_number
from turbo_lab.records.outcome import count_met
from turbo_lab.records.schema import ComparisonRow, Gate

if TYPE_CHECKING:
    import pandas as pd

HEADERS = (
    "name", "unit", "predicted", "measured", "published", "measured / predicted", "allowed",
    "verdict", "n",
)  # fmt: skip


@dataclass(frozen=True)
class ComparisonTable:
    """Rows in the order of the predictions. Its text is the same on every machine.

    ``note`` says where the numbers come from; failed validity gates, and predictions that changed
    since the recorded run, are listed below the rows.
    """

    rows: tuple[ComparisonRow, ...]
    note: str
    gates: tuple[Gate, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def met(self) -> int:
        """How many predictions came true."""
        return count_met(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> ComparisonRow:
        """The row of one prediction. Raises KeyError."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas frame indexed by name, for further work."""
        import pandas as pd

        return pd.DataFrame([row.model_dump() for row in self.rows]).set_index("name")

    def __repr__(self) -> str:
        cells = [HEADERS, *map(_cells, self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(HEADERS))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join(line.rstrip() for line in [*lines, *self._footer()])

    def _repr_markdown_(self) -> str:
        lines = [HEADERS, ("---",) * len(HEADERS), *map(_cells, self.rows)]
        table = "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in x) + " |" for x in lines)
        return table + "\n\n" + "  \n".join(self._footer())

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{html.escape(h)}</th>' for h in HEADERS)
        body = "".join(f"<tr>{_html_row(_cells(row))}</tr>" for row in self.rows)
        foot = "<br>".join(map(html.escape, self._footer()))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{foot}</p>"

    def _footer(self) -> list[str]:
        lines = [f"{self.met} of {len(self.rows)} predictions met. {self.note}"]
        lines += [f"{r.name} is unmeasured: {r.reason}" for r in self.rows if r.reason]
        lines += self.changed
        failed = [g for g in self.gates if g.passed is not True]
        return lines + [
            f"validity gate {'failed' if g.passed is False else 'not checked'}: {g.name}"
            + (f" ({g.detail})" if g.detail else "")
            for g in failed
        ]


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    return (
        row.name,
        row.unit,
        "none" if row.predicted is None else format_number(row.predicted),
        "unmeasured" if row.measured is None else format_number(row.measured),
        "" if row.published is None else f"{format_number(row.published)} [{row.published_claim}]",
        "" if row.ratio is None else f"{row.ratio:.3f}",
        format_allowed(row.tolerance, row.band),
        row.verdict,
        str(row.n),
    )


def _html_row(cells: tuple[Any, ...]) -> str:
    first, *rest = (html.escape(str(cell)) for cell in cells)
    return f'<th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest)
