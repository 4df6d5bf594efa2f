"""``python -m turbo_lab.records verify|promote FILE...``"""

from __future__ import annotations

import argparse
import sys

from turbo_lab.core.errors import TurboLabError
from turbo_lab.records import store


def main(arguments: list[str] | None = None) -> int:
    """Check record files, or copy live ones to where replay finds them. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m turbo_lab.records", description=main.__doc__)
    parser.add_argument("action", choices=("verify", "promote"))
    parser.add_argument("files", nargs="+")
    asked = parser.parse_args(arguments)
    failed = 0
    for path in asked.files:
        try:
            record = store.load(path)
            if asked.action == "promote":
                print(f"{path} -> {store.promote(path, study=record.study)}")
            else:
                met, total = record.predictions_met, record.predictions_total
                print(f"{path}: whole; {record.study}, {met} of {total} predictions met")
        except TurboLabError as error:
            print(error, file=sys.stderr)
            failed = error.exit_code
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
