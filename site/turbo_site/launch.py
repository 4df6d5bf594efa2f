"""Where a reader can open a notebook: Binder, Colab, Codespaces, or a downloaded file."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

VARIABLE = "TURBO_LAB_REPOSITORY"
_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_REMOTE = re.compile(r"(?:^|[/@])github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$")


@dataclass(frozen=True)
class Repository:
    """A repository on GitHub: ``name`` is ``owner/name``."""

    name: str
    branch: str = "main"

    @property
    def url(self) -> str:
        """Its front page."""
        return f"https://github.com/{self.name}"

    def file_url(self, path: str) -> str:
        """The page of one file; ``path`` is relative to the checkout."""
        return f"{self.url}/blob/{quote(self.branch)}/{quote(path)}"

    def launch_urls(self, path: str) -> dict[str, str]:
        """Label to address, for the notebook at ``path`` (relative to the checkout).

        Binder: mybinder.readthedocs.io, "Opening a specific file"; Colab: its "Open in Colab"
        badge; Codespaces: docs.github.com, "Facilitating quick creation and resumption of
        codespaces", which starts the dev container.
        """
        name, branch = self.name, quote(self.branch, safe="")
        binder = f"https://mybinder.org/v2/gh/{name}/{branch}"
        colab = "https://colab.research.google.com/github"
        return {
            "Binder": f"{binder}?urlpath={quote(f'lab/tree/{path}', safe='')}",
            "Colab": f"{colab}/{name}/blob/{branch}/{quote(path)}",
            "Codespaces": f"https://codespaces.new/{name}/tree/{branch}?quickstart=1",
        }


def find_repository(root: Path, environment: Mapping[str, str]) -> Repository | None:
    """The repository that this checkout is published from; None where nothing says it.

    Asked in this order: ``TURBO_LAB_REPOSITORY`` (``owner/name``), GitHub Actions' own
    ``GITHUB_REPOSITORY``, the git remote ``origin``. Raises ValueError for a name of another form.
    """
    for variable in (VARIABLE, "GITHUB_REPOSITORY"):
        if name := environment.get(variable, "").strip():
            if not _NAME.fullmatch(name):
                raise ValueError(f"{variable} is {name!r}; owner/name is wanted, as on GitHub.")
            return Repository(name)
    match = _REMOTE.search(_origin(root))
    return Repository(match[1]) if match else None


def _origin(root: Path) -> str:
    if not (root / ".git").exists():  # an unpacked archive; a repository around it is another one
        return ""
    command = ["git", "-C", str(root), "config", "--get", "remote.origin.url"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # there is no git
        return ""
