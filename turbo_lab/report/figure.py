"""A matplotlib figure as inline SVG with a caption, for pages that open without a network."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE = """
td.n { white-space: nowrap; }
figure { margin: 1rem 0; break-inside: avoid; }
figure svg { background: #fff; border-radius: 4px; }
figcaption { font-size: .9rem; opacity: .8; }
td.FAILED { color: var(--bad); font-weight: 600; } td.warning { color: var(--warn); }
td.passed { color: var(--good); }
@media print { body { max-width: none; font-size: 11pt; color: #000; background: #fff; }
  table, figure, pre { break-inside: avoid; } a { color: inherit; } }
"""


def new_figure(rows: int = 1, *, height_in: float = 3.4) -> tuple[Any, Any]:
    """A figure outside pyplot (no window, no global state) and its axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("matplotlib", needed_for="reports", kind="replay") from error
    figure = Figure(figsize=(7.2, height_in), layout="constrained")
    return figure, figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]


def svg(figure: Any, *, label: str) -> str:
    """The figure as an SVG element with a text alternative."""
    import matplotlib as mpl

    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    body = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    escaped = html.escape(label, quote=True)
    return body.replace("<svg ", f'<svg role="img" aria-label="{escaped}" ', 1)


def drawn(draw: Callable[[Axes], Any], *, caption: str, height_in: float = 3.4) -> str:
    """One figure with its caption as HTML; ``draw`` gets the axes."""
    figure, axes = new_figure(height_in=height_in)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    draw(axes[0])
    return framed(svg(figure, label=caption), caption)


def framed(picture: str, caption: str) -> str:
    """A picture and its caption."""
    return f"<figure>{picture}<figcaption>{html.escape(caption)}</figcaption></figure>"
