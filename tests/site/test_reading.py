"""What a reader does on the site: search, switch to dark, unfold a solution, follow the map."""

from __future__ import annotations

from typing import Any

import pytest

from turbo_lab.course.manifest import load_manifest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor"
FIRST = load_manifest().notebooks[0]


def brightness(colour: str) -> float:
    """Mean of red, green and blue of ``rgb(...)``."""
    numbers = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(numbers) / 3


def test_the_search_finds_a_notebook_by_a_word_in_it(visit: Any) -> None:
    visit.open("search.html?q=fragmentation")
    results = visit.page.locator("#search-results li a")
    results.first.wait_for(timeout=30_000)
    assert any("05_paging" in (a.get_attribute("href") or "") for a in results.all())
    assert not visit.problems, visit.problems


def pages_found(visit: Any, query: str) -> list[str]:
    """Pages in the search's answer, once it says that it has ended."""
    visit.open(f"search.html?q={query}")
    visit.page.locator("#search-results .search-summary", has_text="match").wait_for()
    links = visit.page.locator("#search-results li a").all()
    return [link.get_attribute("href") or "" for link in links]


def test_the_search_finds_a_chinese_word_inside_a_phrase(visit: Any) -> None:
    assert any("05_paging" in page for page in pages_found(visit, "缓存"))
    assert any("07_kv" in page for page in pages_found(visit, "注意力汇"))
    assert pages_found(visit, "缓猫") == []
    assert not visit.problems, visit.problems


def test_a_chinese_query_is_cut_as_the_index_is(visit: Any) -> None:
    visit.open("search.html")
    cut = visit.page.evaluate("(query) => splitQuery(query)", "首token时间, KV缓存量化 n-gram")
    assert cut == ["首", "token", "时间", "KV", "缓存", "存量", "量化", "n", "gram"]


def test_the_switch_makes_the_page_dark_and_it_stays_dark(visit: Any) -> None:
    visit.open("index.html")
    page = visit.page
    light = brightness(page.evaluate(BACKGROUND))
    page.locator(".theme-switch-button:visible").first.click()
    page.locator('.theme-change-button[data-mode="dark"]:visible').first.click()
    dark = brightness(page.evaluate(BACKGROUND))
    assert light > 200 and dark < 60
    visit.open(f"notebooks/{FIRST.stem}.html")
    assert brightness(page.evaluate(BACKGROUND)) < 60


def test_figures_keep_their_white_ground_in_the_dark(visit: Any) -> None:
    visit.open(f"notebooks/{FIRST.stem}.html")
    page = visit.page
    page.evaluate("() => { document.documentElement.dataset.theme = 'dark'; }")
    picture = page.locator(".cell_output img").first
    assert brightness(picture.evaluate("(e) => getComputedStyle(e).backgroundColor")) > 240


def test_a_solution_is_hidden_until_it_is_asked_for(visit: Any) -> None:
    visit.open(f"notebooks/{FIRST.stem}.html")
    fold = visit.page.locator("details.lab-solution").first
    assert not fold.locator("pre").is_visible()
    fold.locator("summary").click()
    assert fold.locator("pre").is_visible()


def test_what_reveal_shows_is_folded_too(visit: Any) -> None:
    visit.open(f"notebooks/{FIRST.stem}.html")
    cell = visit.page.locator("div.cell", has_text="reveal(").last
    assert not cell.locator(".output").is_visible()
    cell.locator("summary").click()
    assert cell.locator(".output").is_visible()


def test_the_map_leads_to_a_notebook(visit: Any) -> None:
    visit.open("index.html")
    visit.page.get_by_role("link", name=FIRST.title, exact=True).first.click()
    visit.page.wait_for_load_state("networkidle")
    assert FIRST.question in visit.page.locator("h1").inner_text()
    assert not visit.problems, visit.problems
