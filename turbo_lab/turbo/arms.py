"""The rows of the error study: widths, numbers of shards, and what they are held against."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.turbo.tables import TableMachine

Kind = Literal["exact", "tables", "int8"]
SWEPT = {  # width by its field in TableMachine
    "weight_bits": {"smoke": (6, 2), "quick": (8, 4, 3, 2, 1), "full": (8, 7, 5, 4, 3, 2, 1)},
    "value_bits": {"smoke": (4,), "quick": (7, 6, 5, 4), "full": (9, 7, 6, 5, 4, 3)},
    "gamma_fraction_bits": {"smoke": (5,), "quick": (5, 4, 2, 0), "full": (5, 4, 2, 1, 0)},
}
SHARDS = {"smoke": (2,), "quick": (2, 8, 16), "full": (2, 3, 8, 16)}
BASE_SHARDS = 4
BASE = TableMachine(gamma_fraction_bits=3)


@dataclass(frozen=True)
class Arm:
    """One way to merge. ``group``: the width or count that differs from the base."""

    name: str
    group: str
    kind: Kind
    shards: int = BASE_SHARDS
    machine: TableMachine = BASE
    tree: str = "chain"

    def __post_init__(self) -> None:
        """Refuse unknown kinds."""
        if self.kind not in get_args(Kind):
            raise UsageError(
                f"kind is {self.kind!r}.{did_you_mean(self.kind, list(get_args(Kind)))}"
            )


def study_arms(effort: str) -> tuple[Arm, ...]:
    """The arms of an effort: base, controls, then one width after the other.

    The artifact's widths over four shards are the base, with three fraction bits of gamma: its own
    number is unknown, and more of them leave this model's gammas no room (the sweep shows it).
    Each sweep changes one thing.
    """
    if effort not in SHARDS:
        raise UsageError(f"effort is {effort!r}.{did_you_mean(effort, list(SHARDS))}")
    base = Arm("tables, base", "base", "tables")
    arms = [
        Arm("exact merge", "control", "exact"),
        Arm("int8 values only", "control", "int8"),
        base,
    ]
    if effort != "smoke":
        arms.append(replace(base, name="tables, balanced tree", group="tree", tree="balanced"))
    for width, by_effort in SWEPT.items():
        arms += [
            replace(base, name=f"{width} {bits}", group=width,
                    machine=replace(BASE, **{width: bits}))
            for bits in by_effort[effort]
        ]  # fmt: skip
    for shards in SHARDS[effort]:
        arms.append(replace(base, name=f"{shards} shards", group="shards", shards=shards))
    most = max(SHARDS[effort])
    arms.append(Arm(f"int8 values only, {most} shards", "control", "int8", shards=most))
    return tuple(arms)
