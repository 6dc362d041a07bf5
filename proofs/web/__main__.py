"""`make web-test`: the page of a real service in a real browser. Prints one JSON line last.

Exit status 1: a check failed. 69: Chromium is not installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from proofs.web.browser import NAMES, find_chromium
from proofs.web.run import MANY, Report, visit_all

_UNAVAILABLE = 69


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(prog="make web-test", description=__doc__)
    parser.add_argument("--shards", type=int, default=MANY, help="shards of the larger stream (%(default)s)")
    parser.add_argument("--screenshots", type=Path, default=Path("var/web-test"), help="directory (%(default)s)")
    arguments = parser.parse_args()
    path = find_chromium()
    if path is None:
        print(
            f"web-test: no browser: install one of {', '.join(NAMES)} (Debian: apt-get install chromium)",
            file=sys.stderr,
        )
        return _UNAVAILABLE
    report = Report(arguments.screenshots, lambda line: print(line, file=sys.stderr))
    visit_all(path, report, many=arguments.shards)
    print(json.dumps(report.as_json()))
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
