"""The "what fits" explorer: sliders in a living Jupyter session, a picture everywhere else.

Committed notebooks hold no widget state, so where a notebook is executed without a person in
front of it (runner, refresh, nbval) only the picture is made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GiB, format_bytes
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.estimate.plan import Plan, plan
from turbo_lab.models.catalog import load_model
from turbo_lab.report.plots.memory import plot_what_fits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KV_DTYPES = ("auto", "fp8", "fp8_per_token_head", "int4_per_token_head")
LENGTHS = tuple(2**n for n in range(9, 18))
MODELS = (
    "llama-3.1-8b", "qwen3-8b", "llama-2-7b", "qwen3-0.6b", "gpt-oss-20b", "mistral-7b-v0.1",
    "gemma-3-27b-text", "qwen3-32b", "qwen3.5-27b", "llama-3.1-70b",
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """One setting of the explorer. ``work_gib`` None is the band of published logs."""

    model: str = "llama-3.1-8b"
    card_gib: float = 24.0
    context_tokens: int = 4096
    kv_dtype: str = "auto"
    utilization: float = 0.92
    work_gib: float | None = None

    def plan(self, *, context_tokens: int | None = None) -> Plan:
        """What fits with this setting, or with another length. Raises UsageError."""
        return plan(
            load_model(self.model).spec(),
            card_gib=self.card_gib,
            context_tokens=context_tokens or self.context_tokens,
            deployment=Deployment(kv_dtype=self.kv_dtype),
            utilization=self.utilization,
            work_gib=self.work_gib,
        )

    @property
    def label(self) -> str:
        """Model, card and cache in a few words."""
        cache = "bf16" if self.kv_dtype == "auto" else self.kv_dtype
        return f"{self.model}, {self.card_gib:g} GiB card, {cache} cache"


def plan_row(choice: Choice) -> dict[str, str]:
    """The plan in words, for a table: every part of the card and what it leaves."""
    found = choice.plan()
    budget = found.budget
    work = [
        budget.activation_bytes[i] + budget.non_torch_bytes[i] + budget.graphs_bytes[i]
        for i in (0, 1)
    ]
    return {
        "card x share [GiB]": _gib(int(budget.total_bytes * budget.utilization)),
        "weights [GiB]": _gib(budget.weights_bytes),
        "work space [GiB]": _span(work),
        "left for the cache [GiB]": _span(budget.kv_bytes),
        "one conversation [GiB]": _gib(found.conversation_bytes),
        "conversations": f"{found.users[0]} to {found.users[1]}",
    }


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / GiB:.2f}"


def _span(pair: Sequence[int]) -> str:
    low, high = (f"{x / GiB:.2f}" for x in pair)
    return low if low == high else f"{low} to {high}"


def draw(choices: Sequence[Choice], *, ax: Axes | None = None) -> Axes:
    """Conversations against their length, one band per choice; the first one's length is marked."""
    if not choices:
        raise UsageError("draw needs at least one Choice.")
    curves: Mapping[str, Any] = {
        c.label: (LENGTHS, [c.plan(context_tokens=n).users for n in LENGTHS]) for c in choices
    }
    return plot_what_fits(curves, chosen_tokens=choices[0].context_tokens, ax=ax)


def someone_is_there() -> bool:
    """True in a notebook that a person has open: Jupyter's server or an editor started the kernel.

    Executors (papermill, nbval, nbclient) start theirs without a session.
    """
    if os.environ.get("TURBO_LAB_RUN_DIR"):
        return False
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return False
    return bool(os.environ.get("JPY_SESSION_NAME")) or "__vsc_ipynb_file__" in shell.user_ns


def explore(start: Choice | None = None, *, models: Sequence[str] = MODELS) -> None:
    """Show the explorer in a living session; elsewhere one line that says how to get it.

    Changing a slider computes everything anew from the estimator; nothing is measured.
    """
    if not someone_is_there():
        print("The sliders appear when you open this notebook in Jupyter: make lab")
        return
    try:
        import ipywidgets
    except ImportError:
        print("The sliders need ipywidgets: python -m pip install ipywidgets")
        return
    from IPython.display import display

    controls = build_controls(start or Choice(), models=models)
    shown = ipywidgets.interactive_output(
        lambda **values: _show(_choice(values)), {name: c for name, c in controls.items()}
    )
    display(ipywidgets.HBox([ipywidgets.VBox([*controls.values()]), shown]))


def build_controls(start: Choice, *, models: Sequence[str] = MODELS) -> dict[str, Any]:
    """One ipywidgets control per field of ``Choice``; ``work_gib`` 0 stands for the band."""
    import ipywidgets as w

    names = [*dict.fromkeys([start.model, *models])]
    row = {"style": {"description_width": "9em"}}
    slide = {**row, "continuous_update": False}
    spans = {
        "card_gib": ("card [GiB]", 8, 192, 4),
        "utilization": ("share of the card", 0.5, 0.98, 0.01),
        "work_gib": ("work [GiB], 0: band", 0, 10, 0.25),
    }
    sliders = {
        name: w.FloatSlider(
            getattr(start, name) or 0.0, description=text, min=low, max=high, step=step, **slide
        )
        for name, (text, low, high, step) in spans.items()
    }
    length = {"options": LENGTHS, "value": start.context_tokens, "description": "context [tokens]"}
    return {
        "model": w.Dropdown(options=names, value=start.model, description="model", **row),
        "context_tokens": w.SelectionSlider(**length, **slide),
        "kv_dtype": w.Dropdown(
            options=KV_DTYPES, value=start.kv_dtype, description="cache format", **row
        ),
        **sliders,
    }


def _choice(values: Mapping[str, Any]) -> Choice:
    return replace(Choice(**values), work_gib=values["work_gib"] or None)


def _show(choice: Choice) -> None:
    import matplotlib.pyplot as plt

    try:
        row = plan_row(choice)
    except UsageError as error:
        print(error)
        return
    for name, value in row.items():
        print(f"{name:>26}  {value}")
    room = choice.plan().budget.kv_bytes[1]
    if room <= 0:
        print(f"The weights do not fit: {format_bytes(-room)} are missing.")
        return
    draw([choice])
    plt.show()
