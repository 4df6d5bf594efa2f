from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from turbo_lab.report.html import ComparisonLine, IndexPage, IndexRow, render_index, render_page
from turbo_lab.report.math import formula_svg, render_math


def row(**more) -> IndexRow:
    base = {
        "id": "00", "title": "A <b>", "question": "Why?", "status": "passed", "minutes": "1.0",
        "predictions": "1 of 1", "link": "html/a.html", "error": "", "recorded": "",
        "comparison": (),
    }  # fmt: skip
    return IndexRow(**{**base, **more})


def page(*rows: IndexRow) -> str:
    return render_index(IndexPage("passed", "now", 1.5, rows, [("mode", "replay: <asked>")]))


def line(**more) -> ComparisonLine:
    base = {"name": "ttft", "unit": "s", "predicted": "1", "measured": "2", "published": "-",
            "verdict": "not met", "reason": ""}  # fmt: skip
    return ComparisonLine(**{**base, **more})


def test_all_text_is_escaped():
    text = page(row(error="<script>alert(1)</script>", status="failed"))
    assert "<script>" not in text and "A &lt;b&gt;" in text and "replay: &lt;asked&gt;" in text


def test_the_page_needs_nothing_from_elsewhere():
    text = page(row())
    assert not re.search(r"(src|href)=\"(https?:)?//", text) and "@import" not in text


def test_comparison_shows_published_numbers_only_where_there_are_some():
    assert '<th class="n">published</th>' not in page(row(comparison=(line(),)))
    text = page(row(comparison=(line(published="3"), line(verdict="unmeasured", reason="why"))))
    assert "published</th>" in text and 'class="not-met"' in text and "why" in text


def test_a_recorded_number_is_labelled():
    assert "Recorded on X" in page(row(recorded="Recorded on X", comparison=(line(),)))


def test_a_page_escapes_its_title_and_keeps_its_body():
    text = render_page("<p>body</p>", title="a < b")
    assert "<title>a &lt; b</title>" in text and "<p>body</p>" in text


@pytest.mark.parametrize(
    "tex",
    [
        r"T(n) = \mathrm{TTFT} + (n-1) \cdot \mathrm{TPOT}",
        r"\frac{2 \cdot L}{H_{kv}}",
        "x",
        r"a \le b \ge \left\lfloor c \right\rfloor",  # names that mathtext does not know
        r"\max\Big(\sum_s t_s,\ \tfrac{1}{2}\Big)",
    ],
)
def test_a_formula_becomes_well_formed_svg_with_its_source_as_label(tex):
    svg = ElementTree.fromstring(formula_svg(tex))
    assert svg.get("aria-label") == tex and len(svg[0].get("d")) > 20
    assert float(svg.get("width")) > 4 and float(svg.get("height")) > 4


def test_math_in_markdown_is_replaced_and_code_and_prices_are_not():
    text = render_math("Cost `$x$`, $5 or $6, and $n-1$:\n\n$$\na + b\n$$\n\n```\n$y$\n```")
    assert "`$x$`" in text and "$5 or $6" in text and "```\n$y$\n```" in text
    assert text.count("<svg") == 2 and '<div class="math">' in text


def test_what_cannot_be_drawn_stays_as_text():
    assert formula_svg(r"\begin{aligned} a < b \end{aligned}") is None
    assert formula_svg(r"a \quad\text{下界}") is None  # its fonts have no such letters
    assert render_math(r"$\nosuchcommand{a<b}$") == (
        r'<span class="math"><code>\nosuchcommand{a&lt;b}</code></span>'
    )


def test_formulas_inside_a_line_keep_their_drawing_in_a_notebooks_page():
    import nbformat

    from turbo_lab.course.pages import notebook_html

    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_markdown_cell("so $(255/15)^2 = 289$ times, and $a + b$.")]
    page = notebook_html(book, title="t")
    drawn = re.findall(r'<span class="math"><svg [^>]*><path [^>]*/></svg></span>', page)
    assert len(drawn) == 2 and "@formula" not in page
