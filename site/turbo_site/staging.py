"""Write the site's sources: Markdown and notebooks that Sphinx reads, and files to download."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from turbo_lab.course.claims import list_claims
from turbo_lab.course.manifest import load_manifest
from turbo_lab.course.notebook_file import read_notebook
from turbo_site import pages
from turbo_site.launch import find_repository
from turbo_site.lessons import lesson_page
from turbo_site.results import outcomes, results_page


def collect(root: Path, environment: Mapping[str, str]) -> pages.Sources:
    """Read what the pages are made from.

    Raises ConfigError, RecordError or ValueError where a source is damaged.
    """
    manifest = load_manifest(root / "notebooks")
    return pages.Sources(
        root=root,
        manifest=manifest,
        outcomes=outcomes(manifest, records=root / "data" / "records"),
        claims=list_claims(folder=root / "data" / "claims"),
        repository=find_repository(root, environment),
    )


def texts(sources: pages.Sources) -> dict[str, str]:
    """All source files of the site: path below the sources to text."""
    found = {
        "index.md": pages.front_page(sources),
        "course.md": pages.course_page(sources),
        "results.md": results_page(sources.outcomes),
        "claims.md": pages.claims_page(sources.claims),
        "guide.md": pages.guide_page(sources),
        **pages.document_pages(sources),
    }
    for one in sources.outcomes:
        found[f"notebooks/{one.entry.file}"] = _lesson(sources, one)
    return found


def _lesson(sources: pages.Sources, one: pages.Outcome) -> str:
    import nbformat

    entry = one.entry
    path = f"notebooks/{entry.file}"
    page = lesson_page(
        read_notebook(sources.manifest.path(entry)),
        entry,
        held=one.held,
        launch=sources.repository.launch_urls(path) if sources.repository else {},
        download=f"../download/{entry.file}",
    )
    return nbformat.writes(page) + "\n"


def stage(sources: pages.Sources, *, folder: Path) -> int:
    """Write ``folder/pages`` and ``folder/extra``; returns how many files changed.

    Files that stay the same keep their time, so that Sphinx reads only what changed; files that
    no page needs any more are removed.
    """
    wanted = {folder / "pages" / name: text for name, text in texts(sources).items()}
    for entry in sources.manifest.notebooks:
        original = sources.manifest.path(entry).read_text(encoding="utf-8")
        wanted[folder / "extra" / "download" / entry.file] = original
    for part in ("pages", "extra"):
        for path in (folder / part).rglob("*"):
            if path.is_file() and path not in wanted:
                path.unlink()
    return sum(_write(path, text) for path, text in wanted.items())


def _write(path: Path, text: str) -> bool:
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True
