"""The parts of notebook 06's table by effort: which recipes, which are served, which pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.experiment.quality_table import QualityRow
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights.recipe import Recipe
from turbo_lab.precision.weights.study import standard_recipes

INT8, TENSOR, CHANNEL = "int8 per channel", "int4 per tensor", "int4 per channel"
GROUP, AWQ, GPTQ = "int4 groups of 64", "int4 groups of 64, AWQ", "int4 groups of 64, GPTQ"
NF4, OWN_GRID = "nf4 groups of 64", "int4 on the file's own grid"
BY_EFFORT = {
    "smoke": (INT8, TENSOR, GROUP),
    "quick": (INT8, TENSOR, CHANNEL, GROUP, AWQ, GPTQ, NF4, OWN_GRID),
}
QUICK_ALPHAS = (0.0, 0.25, 0.5, 0.75)
# (expected better, expected worse): finer scales, more bits, or the same bytes spent with care.
ORDER = ((INT8, GPTQ), (GPTQ, GROUP), (AWQ, GROUP), (NF4, GROUP), (GROUP, CHANNEL),
         (CHANNEL, TENSOR))  # fmt: skip


def lesson_recipes(effort: str) -> dict[str, Recipe]:
    """The recipes of an effort by name, in the table's order; ``full`` has them all.

    The bundled model's file was made from 4-bit weights: groups of 32 with a stored minimum. The
    last recipe is that grid, a control: on it those weights lie already.
    """
    if effort not in (*BY_EFFORT, "full"):
        raise UsageError(f"effort is {effort!r}.{did_you_mean(effort, [*BY_EFFORT, 'full'])}")
    known = standard_recipes()
    grid = Scheme("int4", "group", group_size=32, zero="value", scale_dtype="fp16")
    known[OWN_GRID] = Recipe(OWN_GRID, grid)
    if effort == "quick":
        known[AWQ] = replace(known[AWQ], alphas=QUICK_ALPHAS)
    return {name: known[name] for name in BY_EFFORT.get(effort, known)}


def served_recipes(effort: str) -> dict[str, str]:
    """Arm of the served comparison to the recipe whose checkpoint it loads."""
    return {"int8": INT8, "int4": GROUP if effort == "smoke" else AWQ}


def broken_pairs(rows: Sequence[QualityRow]) -> list[str]:
    """The pairs of :data:`ORDER` that the rows do not show.

    A pair is shown when the KL intervals of the two recipes do not touch, the expected one below.
    Pairs with a recipe that was not measured are left out.
    """
    kl = {row.name: row.text.kl for row in rows if row.text is not None}
    return [
        f"{better} < {worse}"
        for better, worse in ORDER
        if better in kl and worse in kl and not kl[better].high < kl[worse].low
    ]


def pairs_of(names: Sequence[str]) -> int:
    """How many pairs of :data:`ORDER` lie within these recipes."""
    return sum(better in names and worse in names for better, worse in ORDER)
