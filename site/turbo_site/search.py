"""Sphinx extension: the search finds Chinese words too.

Chinese is written without spaces, so Sphinx's English search takes a whole phrase for one word.
Here a run of Chinese characters is indexed as its characters and as its pairs of neighbours, and a
query is cut into pairs likewise: the usual way for text without spaces (Lucene's
CJKBigramFilter). A page is found when it holds all pairs of the query, so a hit may hold them in
another place than side by side. All other words stay as Sphinx's English search has them.
"""

from __future__ import annotations

import re
from typing import Any

HAN = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PART = re.compile(rf"[{HAN}]+|(?:(?![{HAN}])\w)+")
_HAN = re.compile(rf"[{HAN}]")

# The same for a query, in the reader's browser; its first line is Sphinx's own splitter.
SPLIT_QUERY = f"""
var splitQuery = (query) =>
  query.split(/[^\\p{{Letter}}\\p{{Number}}_\\p{{Emoji_Presentation}}]+/gu)
    .flatMap((word) => word.match(/[{HAN}]+|[^{HAN}]+/gu) ?? [])
    .flatMap((part) => /[{HAN}]/u.test(part) && part.length > 2
      ? Array.from({{ length: part.length - 1 }}, (_, i) => part.slice(i, i + 2))
      : [part]);
"""


def words(text: str) -> list[str]:
    """The words of a text that go into the index; Chinese as characters and as pairs."""
    found: list[str] = []
    for part in _PART.findall(text):
        if not _HAN.match(part):
            found.append(part)
            continue
        found += [*part, *(part[i : i + 2] for i in range(len(part) - 1))]
    return found


def setup(app: Any) -> dict[str, bool]:
    """Take the place of Sphinx's English search."""
    from sphinx.search.en import SearchEnglish

    class CourseSearch(SearchEnglish):
        js_splitter_code = SPLIT_QUERY

        def split(self, input: str) -> list[str]:
            return words(input)

    app.add_search_language(CourseSearch)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
