"""Sphinx extension: formulas as inline SVG or MathML, so that no page needs MathJax or a network.

``turbo_lab.report.math`` draws them; what it cannot draw (a matrix, Chinese letters) becomes
MathML, which browsers show themselves.
"""

from __future__ import annotations

import html
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

from turbo_lab.report.math import formula_svg


def formula_html(tex: str, *, display: bool) -> str:
    """One formula. Raises an error of latex2mathml for what is no TeX."""
    tex = " ".join(tex.split())
    shown = formula_svg(tex)
    if shown is None:
        shown = convert(tex, display="block" if display else "inline")
    if not display:
        return f'<span class="math">{shown}</span>'
    label = html.escape(tex, quote=True)
    return f'<div class="math" role="group" aria-label="{label}" tabindex="0">{shown}</div>'


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Formula inside a line."""
    translator.body.append(formula_html(node.astext(), display=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Formula on a line of its own."""
    translator.body.append(formula_html(node.astext(), display=True))
    raise nodes.SkipNode


def set_language(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """The Chinese overview says that it is Chinese, for screen readers and fonts."""
    if pagename == "zh":
        context["language"] = "zh-CN"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name ``svg``."""
    app.add_html_math_renderer(
        "svg", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None)
    )
    app.connect("html-page-context", set_language)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
