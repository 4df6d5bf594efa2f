"""Links of the repository's Markdown files, turned into links between pages of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from turbo_site.launch import Repository

# Code comes first in the alternation: brackets in it are no links.
_LINK = re.compile(
    r"(?P<code>^```.*?^```|`[^`\n]*`)|\[(?P<label>[^\]\n]*)\]\((?P<target>[^)\s]+)\)",
    re.DOTALL | re.MULTILINE,
)


def rewrite_links(
    text: str, *, source: str, page: str, pages: Mapping[str, str], repository: Repository | None
) -> str:
    """``text`` with each relative link pointing to a page of the site.

    Args:
        text: Markdown of the file ``source``.
        source: The file's path in the checkout, with ``/``.
        page: The path that the text gets below the site's sources.
        pages: Path in the checkout to path below the site's sources, for all that have a page.
        repository: Where files without a page can be read; None leaves the label alone.
    """

    def replaced(match: re.Match[str]) -> str:
        if match["code"] is not None or re.match(r"[a-z]+:|#|//", match["target"]):
            return match[0]
        path, hash_, anchor = match["target"].partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if wanted in pages:
            target = posixpath.relpath(pages[wanted], posixpath.dirname(page) or ".")
            return f"[{match['label']}]({target}{hash_}{anchor})"
        if repository is not None:
            return f"[{match['label']}]({repository.file_url(wanted)})"
        return match["label"]

    return _LINK.sub(replaced, text)


def sections(markdown: str) -> tuple[str, dict[str, str]]:
    """What stands before the first ``##`` heading (the title left out), and each section by name.

    The text of a section has no heading. Lines inside code fences are no headings.
    """
    intro, found, name, fenced = [], {}, None, False
    for line in markdown.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("## "):
            name = line[3:].strip()
            found[name] = []
        elif name is not None:
            found[name].append(line)
        elif fenced or not line.startswith("# "):
            intro.append(line)
    return "\n".join(intro).strip(), {k: "\n".join(v).strip() for k, v in found.items()}
