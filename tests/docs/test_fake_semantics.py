from __future__ import annotations

import re

from tests.paths import ROOT

TESTS = ROOT / "tests" / "efo" / "testing"
LINES = (ROOT / "docs" / "fake-semantics.md").read_text().splitlines()
NAMED = re.compile(r"`((?:\w+/)?test_\w+\.py)::(test_\w+)`")
ROWS = [line for line in LINES if line.startswith("| ") and not line.startswith(("| AWS", "|-"))]


def test_every_test_that_the_page_names_exists():
    named = set(NAMED.findall("\n".join(LINES)))
    sources = {file: (TESTS / file).read_text() for file, _ in named}
    missing = [
        f"{file}::{name}"
        for file, name in sorted(named)
        if not re.search(rf"^(?:async )?def {name}\(", sources[file], re.MULTILINE)
    ]
    assert missing == []


def test_every_row_names_a_test():
    assert len(ROWS) > 40
    for row in ROWS:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 6, row
        assert all(cells), row
        assert NAMED.search(cells[2]), row
