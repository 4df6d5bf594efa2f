"""TeX formulas as inline SVG, so that a page shows them without a network or a script.

matplotlib's mathtext draws them; it knows a large part of TeX, some of it under other names. What
it cannot read (a matrix) or has no letters for (Chinese) stays as TeX.
"""

from __future__ import annotations

import html
import re

# Code spans and fences come first in the alternation: a dollar inside them is no formula.
_PARTS = re.compile(
    r"(?P<code>```.*?```|`[^`\n]*`)"
    r"|\$\$(?P<display>.+?)\$\$"
    r"|(?<![\\$\w])\$(?P<inline>[^\s$](?:[^$\n]*[^\s$\\])?)\$(?![\w$])",
    re.DOTALL,
)
SIZE_PX = 16.0
# Names that TeX has and mathtext has not, and what comes nearest in mathtext.
_OTHER_NAMES = (
    (re.compile(r"\\(le|ge)(?![A-Za-z])"), r"\\\1q"),
    (re.compile(r"\\tfrac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\[Bb]igg?l?(?=[(\[])"), r"\\left"),
    (re.compile(r"\\[Bb]igg?r?(?=[)\]])"), r"\\right"),
)
_NO_LETTERS = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")  # mathtext's fonts end before
_LETTERS = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}  # codes of matplotlib.path.Path


def render_math(markdown: str) -> str:
    """Replace ``$...$`` and ``$$...$$`` in Markdown by inline SVG; all else stays as it is."""
    return _PARTS.sub(_replace, markdown)


def _replace(match: re.Match[str]) -> str:
    if match["code"] is not None:
        return match[0]
    tex = " ".join((match["display"] or match["inline"]).split())
    svg = formula_svg(tex)
    shown = svg or f"<code>{html.escape(tex)}</code>"
    kind = "div" if match["display"] is not None else "span"
    return f'<{kind} class="math">{shown}</{kind}>'


def formula_svg(tex: str) -> str | None:
    """One formula as an SVG element in the colour of the text; None when it cannot be drawn.

    Raises MissingDependencyError without matplotlib.
    """
    try:
        from matplotlib.font_manager import FontProperties
        from matplotlib.mathtext import MathTextParser
        from matplotlib.textpath import TextPath
    except ImportError as error:
        from turbo_lab.core.errors import MissingDependencyError

        raise MissingDependencyError("matplotlib", needed_for="formulas", kind="replay") from error
    if _NO_LETTERS.search(tex):
        return None
    font = FontProperties(size=SIZE_PX)
    text = f"${_mathtext(tex)}$"
    try:
        width, height, depth, _, _ = MathTextParser("path").parse(text, dpi=72, prop=font)
        path = TextPath((0, 0), text, size=SIZE_PX, prop=font)
    except (ValueError, RuntimeError):
        return None
    commands = [
        _LETTERS[int(code)] + " ".join(f"{value:.2f}" for value in points)
        if int(code) != 79
        else "Z"
        for points, code in path.iter_segments(simplify=False, curves=True)
    ]
    label = html.escape(tex, quote=True)
    return (
        f'<svg role="img" aria-label="{label}" width="{width:.1f}" height="{height:.1f}" '
        f'viewBox="0 {-(height - depth):.2f} {width:.2f} {height:.2f}" fill="currentColor" '
        f'style="vertical-align:{-depth:.1f}px"><path transform="scale(1,-1)" '
        f'd="{" ".join(commands)}"/></svg>'
    )


def _mathtext(tex: str) -> str:
    for name, other in _OTHER_NAMES:
        tex = name.sub(other, tex)
    return tex
