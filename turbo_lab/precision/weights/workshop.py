"""What notebook 06 measures on: the bundled model in this process, loaded at first use.

It stays on the CPU in every mode, because the table is about bits and not about speed, and the
bundled model is small. The served part of the lesson gets its checkpoints from here.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from turbo_lab.core import host
from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.engines import local_model
from turbo_lab.engines.tuning import cpu_settings
from turbo_lab.experiment.quality_rows import row_to_dict
from turbo_lab.experiment.quality_subject import Subject, load_subject
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.weights import spread as spreads
from turbo_lab.precision.weights.calibration import LayerInputs
from turbo_lab.precision.weights.export import export_checkpoint
from turbo_lab.precision.weights.layers import kind_of, linear_names, set_weight, weight_of
from turbo_lab.precision.weights.lesson import GROUP, lesson_recipes, served_recipes
from turbo_lab.precision.weights.prune import prune_magnitude, prune_two_of_four
from turbo_lab.precision.weights.recipe import QuantizedModel, Recipe, quantized_copy
from turbo_lab.precision.weights.sensitivity import parts_by_block, parts_by_kind, sensitivity
from turbo_lab.precision.weights.study import WeightWork, calibrate, measure_dtype, prepare_weights


class Workshop:
    """The model, its texts and calibration, and the checkpoints made on the way.

    Everything is loaded when it is first needed, and in replay never. ``report`` gets a line for
    each step that takes seconds.
    """

    def __init__(self, effort: str, *, report: Callable[[str], None] = print) -> None:
        self.effort, self.report = effort, report
        self.recipes = lesson_recipes(effort)
        self.checkpoints: dict[str, Path] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @cached_property
    def source(self) -> str:
        """Folder of the bundled model."""
        return local_model.resolve_model(report=self.report)

    def config(self) -> dict[str, Any]:
        """Its config.json."""
        return json.loads((Path(self.source) / "config.json").read_text())

    @cached_property
    def subject(self) -> Subject:
        """Model and tokenizer, float32."""
        return load_subject(self.source)

    @cached_property
    def work(self) -> WeightWork:
        """The reference's scores on our own passages."""
        return prepare_weights(self.subject, effort=self.effort)

    @cached_property
    def inputs(self) -> Mapping[str, LayerInputs]:
        """What reaches each layer on the calibration texts."""
        self.report("  calibrating")
        return calibrate(self.subject, effort=self.effort)

    def dtype_rows(self, dtypes: Sequence[str]) -> list[dict[str, Any]]:
        """Rows of the same weights in narrower arithmetic, no method.

        Raises UnmeasuredError where this processor only emulates that arithmetic: it would take
        minutes per row.
        """
        if cpu_settings(report=self.report).dtype == "float32":
            raise UnmeasuredError("this processor has no fast 16-bit products")
        return [row_to_dict(measure_dtype(self.work, dtype)) for dtype in dtypes]

    def recipe_rows(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Rows of these recipes; those that will be served are written as checkpoints."""
        rows = []
        for name in names:
            self.report(f"  {name}")
            made = self._made(self.recipes[name])
            rows.append(row_to_dict(self.work.row(name, made.model, stored_bytes=made.bytes)))
            if name in served_recipes(self.effort).values():
                self._export(name, made)
        return rows

    def pruned_rows(self, sparsities: Sequence[float]) -> list[dict[str, Any]]:
        """Rows with the smallest weights of each matrix set to zero, and of the 2:4 pattern."""
        rows = [
            self._pruned(f"{100 * share:.0f} % pruned", partial(prune_magnitude, sparsity=share))
            for share in sparsities
        ]
        return [*rows, self._pruned("2:4 pruned", prune_two_of_four)]

    def spreads(self, schemes: Mapping[str, Scheme]) -> dict[str, Any]:
        """Every matrix of one block of each third of the model under each scheme.

        ``rows``: see :class:`.spread.Spread`; ``outliers``: largest magnitude over root mean square
        of each matrix; ``worst``: the histogram of the matrix with the largest one.
        """
        rows, outliers = [], {}
        for name in self._some_layers():
            weight = weight_of(self.subject.model, name)
            outliers[name] = spreads.outlier_ratio(weight)
            rows += [spreads.spread(name, weight, name=label, scheme=s).to_dict()
                     for label, s in schemes.items()]  # fmt: skip
        worst = max(outliers, key=lambda name: outliers[name])
        weight = weight_of(self.subject.model, worst)
        grids = {label: s for label, s in schemes.items() if s.format == "int4"}
        return {
            "rows": rows, "outliers": outliers, "worst": worst,
            "histogram": spreads.histogram(weight), "grids": spreads.grid_lines(weight, grids),
        }  # fmt: skip

    def sensitivities(self, recipe: Recipe) -> dict[str, list[dict[str, Any]]]:
        """Damage (KL) of quantising one kind of layer, and one block, alone; on a short text."""
        work = self._short_work
        found = {}
        for title, parts in (("kind", parts_by_kind), ("block", parts_by_block)):
            self.report(f"  each {title} alone")
            rows = sensitivity(self.subject.model, recipe, parts=parts(self.subject.model),
                               score=work.score)  # fmt: skip
            found[title] = [asdict(row) for row in rows]
        return found

    def skip_rows(self, recipe: Recipe, skips: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        """Rows of one recipe with these layers left in 16 bits, on the short text."""
        rows = []
        for name, skip in skips.items():
            self.report(f"  {name}")
            made = self._made(replace(recipe, skip=tuple(skip)))
            rows.append(
                row_to_dict(self._short_work.row(name, made.model, stored_bytes=made.bytes))
            )
        return rows

    def checkpoint(self, name: str) -> Path:
        """The folder of a recipe's checkpoint, written now if it was not measured before."""
        if name not in self.recipes:
            raise UsageError(f"recipe is {name!r}; allowed here: {', '.join(self.recipes)}")
        if name not in self.checkpoints:
            self._export(name, self._made(self.recipes[name]))
        return self.checkpoints[name]

    def clear(self) -> None:
        """Let go of the model and its logits; checkpoints stay as long as this object."""
        for name in ("subject", "work", "inputs", "_short_work"):
            self.__dict__.pop(name, None)

    @cached_property
    def _short_work(self) -> WeightWork:
        return prepare_weights(self.subject, effort="smoke")

    def _made(self, recipe: Recipe) -> QuantizedModel:
        inputs = self.inputs if recipe.needs_calibration else None
        return quantized_copy(self.subject.model, recipe, inputs=inputs)

    def _some_layers(self) -> list[str]:
        names = linear_names(self.subject.model)
        kinds = len({kind_of(n) for n in names})
        blocks = len(names) // kinds
        chosen = sorted({0, blocks // 2, blocks - 1})
        return [n for b in chosen for n in names[b * kinds : (b + 1) * kinds]]

    def _pruned(self, name: str, prune: Callable[[Any], Any]) -> dict[str, Any]:
        self.report(f"  {name}")
        model = copy.deepcopy(self.subject.model)
        stored, values = 0, 0
        for layer in linear_names(model):
            found = prune(weight_of(model, layer))
            set_weight(model, layer, found.values)
            stored, values = stored + found.bytes, values + found.values.size
        rest = sum(p.numel() for p in model.parameters()) - values
        return row_to_dict(self.work.row(name, model, stored_bytes=stored + 2 * rest))

    def _export(self, name: str, made: QuantizedModel) -> None:
        if self._folder is None:
            root = host.cache_folder() / "checkpoints"
            root.mkdir(parents=True, exist_ok=True)
            self._folder = tempfile.TemporaryDirectory(dir=root)
        target = Path(self._folder.name) / name.replace(" ", "-").replace(",", "")
        self.checkpoints[name] = export_checkpoint(made, target, source=self.source)


def damage_recipe() -> Recipe:
    """The recipe whose damage is looked for layer by layer: rounded to nearest, in groups."""
    return lesson_recipes("smoke")[GROUP]
