"""A folder in which processes tell each other how far they are: no connection of its own needed.

The processes sit in different network namespaces but on one machine; what they agree on must not
use the links that are measured.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Board:
    """Facts by name. A fact is written once and appears whole."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, fact: Any = True) -> None:
        """Write a fact."""
        partial = self.folder / f".{name}.{os.getpid()}"
        partial.write_text(json.dumps(fact))
        partial.replace(self.folder / name)

    def get(self, name: str) -> Any:
        """The fact, or None while there is none."""
        try:
            return json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            return None

    def has(self, name: str) -> bool:
        """True once it is there."""
        return (self.folder / name).exists()
