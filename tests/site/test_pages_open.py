"""Every page in a real browser: opens without complaint, fits a phone, reads well for all."""

from __future__ import annotations

from typing import Any

import pytest

from turbo_lab.core import host
from turbo_lab.course.manifest import load_manifest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PHONE = {"width": 390, "height": 844}
ROOT = host.repository_root()
PAGES = [
    *("index", "course", "results", "claims", "guide", "contributing", "zh", "search"),
    *sorted(p.relative_to(ROOT).with_suffix("").as_posix() for p in ROOT.glob("docs/**/*.md")),
    *(f"notebooks/{entry.stem}" for entry in load_manifest().notebooks),
]
AXE = {"resultTypes": ["violations"], "preload": False}  # it would ask for style sheets again
UNFOLD = "() => document.querySelectorAll('details').forEach((d) => { d.open = true; })"
# Each box that scrolls can be reached with the keyboard, also in what was just unfolded.
REACHED = """() => [...document.querySelectorAll('.bd-article pre, .lab-table')]
  .every((e) => e.scrollWidth <= e.clientWidth || e.tabIndex === 0)"""
WIDTH = "() => document.scrollingElement.scrollWidth"
# Who overflows, so that a failure names its cause.
WIDE = """(limit) => [...document.querySelectorAll('body *')]
  .filter((e) => e.getBoundingClientRect().right > limit + 1).slice(0, 3)
  .map((e) => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 60)}`)"""
STILL = "* { transition: none !important; animation: none !important; }"
SET_THEME = "(theme) => { document.documentElement.dataset.theme = theme; }"


def serious(axe: Any, page: Any, **options: Any) -> list[str]:
    """Findings of axe whose impact is serious or critical: rule, and the first elements."""
    found = axe.run(page, options={**AXE, **options}).response
    return [
        f"{one['id']}: {[node['html'][:120] for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_fits_a_phone_and_is_accessible(visit: Any, axe: Any, name: str) -> None:
    visit.open(f"{name}.html")
    page = visit.page
    assert page.title() and page.locator("h1").count() == 1
    page.add_style_tag(content=STILL)  # a colour half way to another is nobody's choice
    page.evaluate(UNFOLD)
    page.wait_for_function(REACHED, timeout=10_000)
    assert serious(axe, page) == []
    page.evaluate(SET_THEME, "dark")
    contrast = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
    assert serious(axe, page, **contrast) == []
    page.set_viewport_size(PHONE)
    assert page.evaluate(WIDTH) <= PHONE["width"], page.evaluate(WIDE, PHONE["width"])
    assert not visit.problems, visit.problems
