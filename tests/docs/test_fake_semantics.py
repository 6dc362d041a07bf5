from __future__ import annotations

import re

from tests.paths import ROOT

TESTS = ROOT / "tests" / "efo" / "testing"
LINES = (ROOT / "docs" / "fake.md").read_text().partition("\n## Compared with Kinesis\n")[2].splitlines()
NAMED = re.compile(r"`((?:\w+/)?test_\w+\.py)::(test_\w+)`")
_ALL_ROWS = [line for line in LINES if line.startswith("| ") and not line.startswith(("| AWS", "|-", "| evidence"))]
KINDS = {kind.strip() for line in _ALL_ROWS if line.count("|") == 3 for kind in line.split("|")[1].split(",")}
ROWS = [line for line in _ALL_ROWS if line.count("|") > 3]


def test_every_test_that_the_page_names_exists():
    named = set(NAMED.findall("\n".join(LINES)))
    sources = {file: (TESTS / file).read_text() for file, _ in named}
    missing = [
        f"{file}::{name}"
        for file, name in sorted(named)
        if not re.search(rf"^ *(?:async )?def {name}\(", sources[file], re.MULTILINE)
    ]
    assert missing == []


def test_every_row_names_a_test():
    assert len(ROWS) > 40
    for row in ROWS:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 7, row
        assert all(cells), row
        assert NAMED.search(cells[3]), row


def test_every_row_names_its_evidence():
    assert len(KINDS) > 8
    for row in ROWS:
        behaviour, evidence = (cell.strip() for cell in row.strip("|").split("|")[:2])
        named = {re.split("[ :]", part.strip())[0] for part in evidence.split(";")}
        assert evidence == behaviour == "-" or all(any(kind.split()[0] == name for kind in KINDS) for name in named), (
            row
        )
        assert "*inferred*" not in behaviour or "inferred" in named, row
