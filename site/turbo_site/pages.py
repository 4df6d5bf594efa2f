"""The pages that are no notebook: front page, course map, guide, claims, Chinese overview."""

from __future__ import annotations

import html
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.course.claims import Claim
from turbo_lab.course.manifest import Manifest
from turbo_site.launch import VARIABLE, Repository
from turbo_site.links import rewrite_links, sections
from turbo_site.results import Outcome, totals

FRONT_SECTIONS = ("Two commands", "Your first day")  # of the README; shown on the front page
MAP_SECTION = "Map"  # of the README; the site draws its own from course.toml
ELSEWHERE = "Open a notebook elsewhere"
NO_TOC = "---\nhtml_theme.sidebar_secondary.remove: true\n---\n\n"
HIDDEN_TOC = "```{toctree}\n:hidden:\n:maxdepth: 2\n\n%s\n```"


@dataclass(frozen=True)
class Sources:
    """What all pages are made from: the checkout, its notebooks, records and public address."""

    root: Path
    manifest: Manifest
    outcomes: tuple[Outcome, ...]
    claims: tuple[Claim, ...]
    repository: Repository | None

    def read(self, path: str) -> str:
        """Text of a file of the checkout."""
        return (self.root / path).read_text(encoding="utf-8")

    def documents(self) -> dict[str, str]:
        """Markdown files that get a page: path in the checkout to path on the site."""
        found = {"CONTRIBUTING.md": "contributing.md", "README.zh-CN.md": "zh.md"}
        for path in sorted((self.root / "docs").glob("**/*.md")):
            name = path.relative_to(self.root).as_posix()
            found[name] = name
        return found

    def pages(self) -> dict[str, str]:
        """All files of the checkout that links may point to, with their pages."""
        books = {f"notebooks/{e.file}": f"notebooks/{e.file}" for e in self.manifest.notebooks}
        return {**self.documents(), **books, "README.md": "index.md"}

    def page_text(self, text: str, *, source: str, page: str) -> str:
        """Text of the file ``source`` with its links turned into links of the site."""
        return rewrite_links(
            text, source=source, page=page, pages=self.pages(), repository=self.repository
        )


def front_page(sources: Sources) -> str:
    """The front page: the README's own words, the numbers of the records, the map."""
    readme = sources.page_text(sources.read("README.md"), source="README.md", page="index.md")
    intro, parts = sections(readme)
    intro = "\n\n".join(p for p in intro.split("\n\n") if "zh.md" not in p)
    shown = [f"## {name}\n\n{parts[name]}" for name in FRONT_SECTIONS]
    toc = HIDDEN_TOC % "course\nresults\nclaims\nguide\n中文 <zh>"
    body = [
        "# Turbo Lab",
        '<div class="lab-hero">',
        intro,
        _buttons(),
        _numbers(sources),
        "</div>",
        "## The course",
        course_map(sources.outcomes),
        *shown,
        toc,
    ]
    return NO_TOC + "\n\n".join(body) + "\n"


def _buttons() -> str:
    targets = {
        "Start with the first notebook": "notebooks/00_start_here.html",
        "See what held": "results.html",
        "中文说明": "zh.html",
    }
    items = "".join(f'<li><a href="{url}">{label}</a></li>' for label, url in targets.items())
    return f'<ul class="lab-buttons">{items}</ul>'


def _numbers(sources: Sources) -> str:
    held, made = totals(sources.outcomes)
    entries = sources.manifest.notebooks
    minutes = sum(entry.minutes for entry in entries)
    facts = {
        "notebooks, each with one question": f"{len(entries)}",
        "minutes live on 2 cores, all together": f"{minutes:g}",
        "recorded predictions that held": f"{held} of {made}",
    }
    items = "".join(
        f"<div><dt>{what}</dt><dd>{number}</dd></div>" for what, number in facts.items()
    )
    return f'<dl class="lab-numbers">{items}</dl>'


def course_map(outcomes: Sequence[Outcome]) -> str:
    """All notebooks as cards: number, title, question, minutes, needs, predictions held."""
    return '<ol class="lab-map">' + "".join(map(_card, outcomes)) + "</ol>"


def _card(one: Outcome) -> str:
    entry = one.entry
    needs = "live server" if "engine" in entry.needs else "no server"
    held = f"<li>{one.held.replace('predictions ', '')}</li>" if one.held else ""
    draft = "<li>draft</li>" if entry.status == "draft" else ""
    meta = f"<li>{entry.minutes:g} min</li><li>{needs}</li>{held}{draft}"
    return (
        f'<li><span class="lab-id" aria-hidden="true">{entry.id}</span>'
        f'<h3><a href="notebooks/{entry.stem}.html">{html.escape(entry.title)}</a></h3>'
        f"<p>{html.escape(entry.question)}</p>"
        f'<ul class="lab-meta">{meta}</ul></li>'
    )


def course_page(sources: Sources) -> str:
    """The course in order, and where a notebook can be opened."""
    entries = sources.manifest.notebooks
    minutes = sum(entry.minutes for entry in entries)
    files = "\n".join(f"notebooks/{entry.stem}" for entry in entries)
    return (
        "# Course\n\n"
        "The pages show the notebooks as they are committed: executed in replay mode, with "
        f"recorded numbers. Minutes were measured live on 2 cores; all together they take "
        f"{minutes:g}.\n\n"
        f"{course_map(sources.outcomes)}\n\n{_elsewhere(sources.repository)}\n\n"
        f"{HIDDEN_TOC % files}\n"
    )


def _elsewhere(repository: Repository | None) -> str:
    """What happens to whoever opens or downloads a notebook, place by place."""
    parts = [
        f"## {ELSEWHERE}",
        "A notebook needs the course around it. Its file alone stops at the first import: `No "
        "module named 'turbo_lab'`.",
        "- **Download** gives the file alone. An installed checkout has the same one in its folder "
        "`notebooks`: `make lab`.",
    ]
    if repository is None:
        parts.append(
            "Links to Binder, Colab and Codespaces appear when the site is built from a clone of "
            f"a GitHub repository, or with `{VARIABLE}=owner/name`."
        )
        return "\n\n".join(parts)
    folder = f"/content/{posixpath.basename(repository.name)}"
    parts[-1] += (
        "\n- **Binder** builds the light environment (the first visitor of a version waits "
        "minutes) and opens the notebook in JupyterLab: recorded results, exercises, all formulas. "
        "Changes are lost when the session ends.\n"
        "- **Codespaces** needs a GitHub account and opens the whole checkout in VS Code with the "
        "light environment; choose the kernel `.venv`. `make course` in its terminal installs the "
        "engine and runs live.\n"
        "- **Colab** opens the notebook's file alone. Add this cell at the top and run it first; "
        "then the notebook shows recorded results. Packages are Colab's own, not the pinned ones."
    )
    parts.append(
        "```ipython\n"
        f"!git clone --depth 1 {repository.url} {folder}\n"
        f"%cd {folder}/notebooks\n"
        f'import sys; sys.path.insert(0, "{folder}")\n'
        "```"
    )
    return "\n\n".join(parts)


def guide_page(sources: Sources) -> str:
    """All sections of the README that the front page does not show, and the documents."""
    readme = sources.page_text(sources.read("README.md"), source="README.md", page="guide.md")
    _, parts = sections(readme)
    left = [name for name in parts if name not in (*FRONT_SECTIONS, MAP_SECTION)]
    body = "\n\n".join(f"## {name}\n\n{parts[name]}" for name in left)
    documents = [page for page in sources.documents().values() if page != "zh.md"]
    toc = HIDDEN_TOC % "\n".join(page.removesuffix(".md") for page in documents)
    return f"# Guide\n\n{body}\n\n{toc}\n"


def claims_page(claims: Sequence[Claim]) -> str:
    """Every published statement that a notebook leans on, each with an anchor."""
    head = (
        "# Claims\n\n"
        "Published statements that the notebooks lean on, in our own words, with the conditions "
        "under which they hold. *read*: read in the source itself; *computed*: by us from its "
        "inputs; *secondary*: read where it is quoted."
    )
    return "\n\n".join([head, *map(_claim, claims)]) + "\n"


def _claim(claim: Claim) -> str:
    source = f"[{claim.source}]({claim.url})" if claim.url else claim.source
    number = "" if claim.number is None else f" Number: {claim.number:,} {claim.unit}."
    return (
        f"(claim-{claim.id})=\n**`{claim.id}`**: {claim.statement}{number}\n\n"
        f"Conditions: {claim.conditions}. Source: {source} ({claim.confidence})."
    )


def document_pages(sources: Sources) -> Mapping[str, str]:
    """Path on the site to text, for CONTRIBUTING, the Chinese overview and ``docs/``."""
    found = {}
    for source, page in sources.documents().items():
        text = sources.page_text(sources.read(source), source=source, page=page)
        if page == "zh.md":
            text = text.replace("[README.md](index.md)", "[Guide](guide.md)")
        found[page] = text
    return found
