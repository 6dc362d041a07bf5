"""Checks and runs the documentation, and builds its site: `make docs`.

Links and navigation are checked. The tests of tests/docs run every example, and note what
ran; those of tests/examples run the example project. Then the site is built
from the pages and the code, with warnings as errors, and searched for anything that it would fetch from elsewhere. The
last line of the output is one JSON object. The exit status is 0 if everything held.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tools.docs import ledger, reference, site
from tools.docs.api_reference import api
from tools.docs.examples import Example, examples
from tools.docs.links import is_external, problems
from tools.docs.pages import ROOT, Page, read_pages

_MADE: Final = {**reference.PAGES, "reference/api.md": ("every public name of the library, with its docstring", api)}
_NEEDS: Final = {
    "spark": "needs Java, or Spark's connector for Kafka (make kafka-install)",
    "dynamodb": "needs MiniStack (make ministack)",
}


def main() -> int:
    """Check, run and build; return the exit status."""
    parser = argparse.ArgumentParser(
        "make docs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-run", action="store_true", help="do not run the examples")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", help="where the site is written")
    parser.add_argument(
        "--sphinx", type=Path, default=ROOT / ".tools/docs/bin/python", help="the Python that has Sphinx"
    )
    arguments = parser.parse_args()
    pages = read_pages()
    found = list(examples(pages))
    wrong = [*problems(pages), *site.navigation_problems(pages)]
    broken = len(wrong)
    executed = set() if arguments.no_run else _run(found, wrong)
    if not broken:
        _build(pages, arguments.output, arguments.sphinx, wrong)
    for problem in wrong:
        print(f"docs: {problem}", file=sys.stderr)
    print(json.dumps(_result(pages, found, executed, broken, arguments.output)))
    return 1 if wrong else 0


def _run(found: list[Example], wrong: list[str]) -> set[str]:
    """Run the examples by their tests; return the places of those that ran."""
    path = ROOT / "build" / "docs-ledger.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    tests = ["tests/docs", "tests/tools/docs", "tests/examples"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *tests]
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, ledger.VARIABLE: str(path)}, check=False).returncode
    if status:
        wrong.append(f"the tests of the examples exit with {status}")
    executed = ledger.read(path)
    forgotten = [one.place for one in found if not (one.place in executed or one.reason or one.kind in _NEEDS)]
    if not status:
        wrong += [f"{place}: no test runs this example" for place in forgotten]
    return executed


def _build(pages: tuple[Page, ...], output: Path, python: Path, wrong: list[str]) -> None:
    source = ROOT / "build" / "docs"
    site.assemble(pages, {path: (what, make()) for path, (what, make) in _MADE.items()}, source)
    try:
        site.build(source, output, python)
    except site.SiteError as error:
        wrong.append(str(error))
    else:
        wrong += [f"{place}: the site may fetch nothing from elsewhere" for place in site.requests_elsewhere(output)]


def _result(
    pages: tuple[Page, ...], found: list[Example], executed: set[str], broken: int, output: Path
) -> dict[str, Any]:
    left = Counter(one.reason or _NEEDS.get(one.kind, "not run") for one in found if one.place not in executed)
    links = [link for page in pages for link in page.links]
    return {
        "pages": len(list(output.rglob("*.html"))),
        "commands": len(found),
        "executed": sum(one.place in executed for one in found),
        "not_executed": dict(sorted(left.items())),
        "links": len(links),
        "external_links": sum(map(is_external, links)),
        "broken": broken,
        "site": str(output),
    }


if __name__ == "__main__":
    sys.exit(main())
