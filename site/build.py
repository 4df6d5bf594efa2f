"""Build the site: ``make site``, or ``.venv-site/bin/python site/build.py``.

The sources are written to ``site/_build/pages`` and read by Sphinx; the result is
``site/_build/html``. Nothing is fetched and no notebook is executed. A warning is an error.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from turbo_lab.core.errors import TurboLabError  # noqa: E402
from turbo_site.staging import collect, stage  # noqa: E402


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE / "_build", help="folder of the build")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--fresh", action="store_true", help="read all pages again")
    args = parser.parse_args()
    output, start = args.output.resolve(), time.monotonic()
    try:
        sources = collect(HERE.parent, os.environ)
        changed = stage(sources, folder=output)
    except (TurboLabError, ValueError, OSError) as error:
        print(f"The site was not built: {error}", file=sys.stderr)
        return 1
    where = sources.repository.name if sources.repository else "unknown, so no launch buttons"
    print(f"{changed} source files changed; repository: {where}")
    code = _sphinx(output, jobs=args.jobs, fresh=args.fresh)
    if code == 0:
        page = output / "html" / "index.html"
        print(f"Site ready in {time.monotonic() - start:.0f} s: {page}")
    return code


def _sphinx(output: Path, *, jobs: int, fresh: bool) -> int:
    from sphinx.cmd.build import main as sphinx_build

    options = ["-b", "html", "-c", str(HERE), "-d", str(output / "doctrees"), "-q"]
    options += ["-D", f"html_extra_path={output / 'extra'}"]
    options += ["-j", str(jobs), "-W", "--keep-going", *(["-E", "-a"] if fresh else [])]
    return sphinx_build([*options, str(output / "pages"), str(output / "html")])


if __name__ == "__main__":
    sys.exit(main())
