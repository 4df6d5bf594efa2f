"""The built files: links, anchors, alt texts, numbers, and nothing from elsewhere."""

from __future__ import annotations

import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from turbo_lab.core import host
from turbo_lab.course.manifest import load_manifest
from turbo_lab.records import store

pytestmark = pytest.mark.browser
COURSE = load_manifest()
RECORDS = host.repository_root() / "data" / "records"


class Facts(HTMLParser):
    """Ids, links, loaded files and pictures of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag == "link" and "stylesheet" in (values.get("rel") or "") and values.get("href"):
            self.loaded.append(values["href"])
        if tag in ("script", "img", "iframe") and values.get("src"):
            self.loaded.append(values["src"])
        if tag == "img":
            self.pictures.append(values)


@pytest.fixture(scope="module")
def site(html: Path) -> dict[str, Facts]:
    """Path of each page to its facts."""
    pages = {p.relative_to(html).as_posix(): p for p in html.rglob("*.html")}
    return {
        name: Facts(path.read_text(encoding="utf-8"))
        for name, path in pages.items()
        if not name.startswith("_static/")
    }


def test_each_notebook_of_the_course_has_its_page(site: dict[str, Facts]) -> None:
    missing = {f"notebooks/{entry.stem}.html" for entry in COURSE.notebooks} - set(site)
    assert not missing


def test_no_link_inside_the_site_is_broken(site: dict[str, Facts], html: Path) -> None:
    broken = []
    for name, facts in site.items():
        for link in facts.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(url.path)))
            target = name if not url.path else path
            if target not in site and not (html / target).is_file():
                broken.append(f"{name}: {link}")
            elif url.fragment and unquote(url.fragment) not in site[target].ids:
                broken.append(f"{name}: {link} (no such anchor)")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: dict[str, Facts], html: Path) -> None:
    for name, facts in site.items():
        foreign = [f for f in facts.loaded if urlsplit(f).scheme not in ("", "data")]
        assert not foreign, name
    for path in html.rglob("*.css"):
        text = path.read_text(encoding="utf-8", errors="replace")
        foreign = re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^\s)]*", text)
        assert not foreign, path.name


def test_every_picture_says_what_it_shows(site: dict[str, Facts]) -> None:
    seen = 0
    for name, facts in site.items():
        for picture in facts.pictures:
            alt = picture.get("alt") or ""
            assert len(alt) > 20 and "_images" not in alt, (name, picture)
            seen += 1
    assert seen >= len(COURSE.notebooks)


def test_the_results_are_those_of_the_records(html: Path) -> None:
    text = (html / "results.html").read_text(encoding="utf-8")
    for entry in COURSE.notebooks:
        if not store.list_records(RECORDS / f"nb{entry.id}"):
            continue
        record = store.load(store.find(f"nb{entry.id}", effort="quick", folder=RECORDS))
        assert record.digest and record.digest in text, f"built before nb{entry.id}: make site"
        assert f"{record.predictions_met} of {record.predictions_total} predictions held" in text
    assert 'class="lab-held"' in text
