"""What the site is made from: links, launch addresses, lessons, staging. No Sphinx, no browser."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from turbo_lab.core import host
from turbo_lab.core.errors import UsageError
from turbo_lab.course.exercises import find_solution
from turbo_lab.course.manifest import NotebookEntry
from turbo_site import lessons, pages, staging
from turbo_site.launch import Repository, find_repository
from turbo_site.lessons import lesson_page
from turbo_site.links import rewrite_links, sections
from turbo_site.search import words

PAGES = {"README.md": "index.md", "docs/a.md": "docs/a.md", "CONTRIBUTING.md": "contributing.md"}
REPOSITORY = Repository("someone/turbo-lab")
ENTRY = NotebookEntry(
    "00", "00_x.ipynb", "X", "Why?", 3, ("engine",), "m", "turbo_lab/engines", False, "ready"
)
CAPTION = "**Figure 1.** Seconds over `tokens`. *What would refute it*: a bend."


@pytest.mark.parametrize(
    ("link", "source", "page", "wanted"),
    [
        ("[a](docs/a.md#b)", "README.md", "guide.md", "[a](docs/a.md#b)"),
        ("[a](README.md)", "README.md", "docs/x.md", "[a](../index.md)"),
        ("[a](../CONTRIBUTING.md)", "docs/a.md", "docs/a.md", "[a](../contributing.md)"),
        ("[a](https://x.org/README.md)", "README.md", "guide.md", "[a](https://x.org/README.md)"),
        ("`[a](README.md)`", "README.md", "docs/x.md", "`[a](README.md)`"),
        ("[a](LICENSE)", "README.md", "guide.md", f"[a]({REPOSITORY.file_url('LICENSE')})"),
    ],
)
def test_links_lead_to_pages(link: str, source: str, page: str, wanted: str) -> None:
    asked = {"source": source, "page": page, "pages": PAGES}
    assert rewrite_links(link, **asked, repository=REPOSITORY) == wanted


def test_a_file_without_page_is_named_where_no_repository_is_known() -> None:
    asked = {"source": "README.md", "page": "guide.md", "pages": PAGES, "repository": None}
    assert rewrite_links("see [LICENSE](LICENSE).", **asked) == "see LICENSE."


def test_sections_are_found_and_code_is_no_heading() -> None:
    intro, parts = sections("# T\n\nhello\n\n## A\n\n```\n## not one\n```\n\n## B\nend")
    assert intro == "hello" and list(parts) == ["A", "B"] and "## not one" in parts["A"]


def test_chinese_is_indexed_as_characters_and_pairs_and_the_rest_as_words() -> None:
    assert words("KV缓存, prefill_1") == ["KV", "缓", "存", "缓存", "prefill_1"]
    assert words("首token时间") == ["首", "token", "时", "间", "时间"]


def test_launch_addresses_name_repository_and_notebook() -> None:
    urls = REPOSITORY.launch_urls("notebooks/00_x.ipynb")
    assert list(urls) == ["Binder", "Colab", "Codespaces"]
    assert all("someone/turbo-lab" in url for url in urls.values())
    assert urls["Binder"].endswith("urlpath=lab%2Ftree%2Fnotebooks%2F00_x.ipynb")
    assert urls["Colab"].endswith("/blob/main/notebooks/00_x.ipynb")


def test_the_repository_is_asked_for_in_order(tmp_path: Path) -> None:
    both = {"TURBO_LAB_REPOSITORY": "a/b", "GITHUB_REPOSITORY": "c/d"}
    assert find_repository(tmp_path, both) == Repository("a/b")
    assert find_repository(tmp_path, {"GITHUB_REPOSITORY": "c/d"}) == Repository("c/d")
    assert find_repository(tmp_path, {}) is None
    with pytest.raises(ValueError, match="owner/name"):
        find_repository(tmp_path, {"TURBO_LAB_REPOSITORY": "https://github.com/a/b"})


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("https://github.com/a/b.git", Repository("a/b")),
        ("https://name:secret@github.com/a/b", Repository("a/b")),
        ("git@github.com:a/b.git", Repository("a/b")),
        ("https://notgithub.com/a/b", None),
        ("https://gitlab.com/a/b", None),
    ],
)
def test_the_remote_is_this_checkouts_own(
    tmp_path: Path, url: str, wanted: Repository | None
) -> None:
    inner = tmp_path / "archive"
    inner.mkdir()
    for command in (["init", "-q"], ["remote", "add", "origin", url]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    assert find_repository(tmp_path, {}) == wanted
    assert find_repository(inner, {}) is None  # unpacked inside of somebody's repository


def test_where_a_notebook_can_be_opened_is_explained(sources: pages.Sources) -> None:
    known = pages.course_page(sources)
    assert "No module named 'turbo_lab'" in known
    for label in ("Download", *REPOSITORY.launch_urls("x")):
        assert f"- **{label}**" in known
    assert f"!git clone --depth 1 {REPOSITORY.url} /content/turbo-lab" in known
    unknown = pages.course_page(pages.Sources(**{**vars(sources), "repository": None}))
    assert "- **Download**" in unknown and "github.com" not in unknown
    assert pages.ELSEWHERE.lower().replace(" ", "-") == lessons.ELSEWHERE


def notebook(*, caption: str = CAPTION):
    picture = new_output("display_data", data={"image/png": "aGk="})
    return new_notebook(
        cells=[
            new_markdown_cell("# 00 · Why?\n\n## Overview\n\nIt is so [claim:some-claim]."),
            new_code_cell("plot()", outputs=[picture]),
            new_markdown_cell(caption),
            new_code_cell("answer = ...\ncheck('00.1', answer)", metadata={"tags": ["exercise"]}),
            new_code_cell("reveal('00.1')"),
        ]
    )


def lesson(book):
    facts = {"held": "3 of 4 predictions held", "download": "../download/00_x.ipynb"}
    return lesson_page(book, ENTRY, launch={"Binder": "https://b.org/?a&b"}, **facts)


def test_a_lesson_gets_alt_text_solution_facts_and_claims() -> None:
    book = notebook()
    before = str(book)
    cells = lesson(book).cells
    assert str(book) == before
    assert cells[1].metadata["mystnb"]["image"]["alt"] == "Seconds over tokens."
    assert find_solution("00.1").__name__ in cells[4].source and "<details" in cells[4].source
    assert "hide-output" in cells[5].metadata.tags
    title = cells[0].source
    assert title.startswith("# 00 · Why?\n\n<div") and "3 of 4 predictions held" in title
    assert 'href="https://b.org/?a&amp;b"' in title and "3 min live" in title
    assert f'href="../course.html#{lessons.ELSEWHERE}"' in title
    assert r"[\[some-claim\]](#claim-some-claim)" in title


def test_a_figure_without_caption_is_refused() -> None:
    with pytest.raises(UsageError, match="cell 1"):
        lesson(notebook(caption="Just a line."))


@pytest.fixture(scope="module")
def sources() -> pages.Sources:
    return staging.collect(host.repository_root(), {"TURBO_LAB_REPOSITORY": "someone/turbo-lab"})


def test_the_front_page_tells_the_readmes_words_and_the_whole_map(sources: pages.Sources) -> None:
    text = pages.front_page(sources)
    assert "make course\nmake test" in text and "| # | notebook" not in text
    for one in sources.outcomes:
        assert f"notebooks/{one.entry.stem}.html" in text and one.entry.question in text
    held = sum(one.record.predictions_met for one in sources.outcomes if one.record)
    assert f"{held} of " in text


def test_no_section_of_the_readme_is_lost(sources: pages.Sources) -> None:
    _, parts = sections(sources.read("README.md"))
    shown = pages.front_page(sources) + pages.guide_page(sources)
    assert [name for name in parts if f"## {name}" not in shown] == [pages.MAP_SECTION]


def test_staging_writes_only_what_changed_and_removes_the_rest(
    sources: pages.Sources, tmp_path: Path
) -> None:
    few = pages.Sources(**{**vars(sources), "outcomes": sources.outcomes[:2]})
    assert staging.stage(few, folder=tmp_path) > 2
    old = tmp_path / "pages" / "gone.md"
    old.write_text("old")
    assert staging.stage(few, folder=tmp_path) == 0
    assert not old.exists() and (tmp_path / "pages" / "results.md").exists()
