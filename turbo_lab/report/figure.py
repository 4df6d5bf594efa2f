"""A matplotlib figure as inline SVG with a caption, for pages that open without a network."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The pictures have no background; in the dark their colours are turned over, hues kept.
STYLE = """
td.n { white-space: nowrap; } td.note { min-width: 13rem; }
.scroll th:first-child, .scroll td:first-child { position: sticky; left: 0;
  background: var(--bg); }
.facts table { width: 100%; } .facts td { overflow-wrap: anywhere; }
.facts th:first-child, .facts td:first-child { width: 28%; overflow-wrap: break-word; }
figure { margin: 1.2rem 0; break-inside: avoid; }
figure svg { width: 100%; max-width: 44rem; }
figcaption { font-size: .9rem; max-width: 44rem; }
figcaption .refuted { opacity: .8; }
.verdict { border-left: 4px solid var(--line); padding: .1rem 0 .1rem .8rem; }
.verdict.bad { border-color: var(--bad); } .verdict.good { border-color: var(--good); }
.verdict.warn { border-color: var(--warn); }
td.FAILED, .bad strong { color: var(--bad); font-weight: 600; } td.warning { color: var(--warn); }
td.passed { color: var(--good); }
@media (max-width: 40rem) { td.note { min-width: 28rem; } }
@media screen and (prefers-color-scheme: dark) {
  figure svg { filter: invert(.9) hue-rotate(180deg); } }
@media print {
  :root { color-scheme: light; --fg:#000; --bg:#fff; --soft:#f3f4f6; --line:#bbb; --link:#000;
    --good:#146c2e; --bad:#b3261e; --warn:#8a5a00; }
  body { max-width: none; padding: 0; font-size: 10pt; } .scroll { overflow: visible; }
  table { font-size: 8.5pt; } td.note { min-width: 0; font-size: inherit; }
  th, td { padding: .15rem .5rem .15rem 0; } h2, h3 { break-after: avoid; }
  tr, figure, pre { break-inside: avoid; } figure svg { max-width: 15cm; } a { color: inherit; } }
"""
WIDTH_IN = 5.4  # Narrow, so that the letters are still read when a phone shows the whole width.
LETTERS = {"font.size": 9, "legend.fontsize": 8.5, "axes.titlesize": 9.5}


def drawn(
    draw: Callable[[Sequence[Axes]], Any],
    *,
    caption: str,
    refuted: str,
    alt: str,
    shape: tuple[int, int] = (1, 1),
    height_in: float = 2.9,
) -> str:
    """One figure with its caption as HTML.

    Args:
        draw: gets the axes, row by row.
        caption: what is seen.
        refuted: what would show that the figure is wrong.
        alt: what it says, in words and numbers, for those who do not see it.
        shape: rows and columns of axes; axes of one column share their x axis.
        height_in: of the whole figure, in inches.

    Raises MissingDependencyError without matplotlib.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("matplotlib", needed_for="reports", kind="replay") from error
    with mpl.rc_context({**LETTERS, "svg.fonttype": "none", "svg.hashsalt": caption + alt}):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        shared = "col" if shape[1] == 1 else "none"
        axes = list(figure.subplots(*shape, sharex=shared, squeeze=False).flat)
        for ax in axes:
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(alpha=0.25)
        draw(axes)
        picture = _svg(figure, alt=alt)
    words = f"{html.escape(caption)} <span class='refuted'>{html.escape(refuted)}</span>"
    return f"<figure>{picture}<figcaption>{words}</figcaption></figure>"


def _svg(figure: Any, *, alt: str) -> str:
    """The figure as an SVG element with a text alternative, without a background."""
    stream = io.StringIO()
    kept = {"metadata": {"Date": None, "Creator": None}, "transparent": True}
    figure.savefig(stream, format="svg", **kept)
    text = stream.getvalue()
    body = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    escaped = html.escape(alt, quote=True)
    return body.replace("<svg ", f'<svg role="img" aria-label="{escaped}" ', 1)
