"""The table of properties in the documentation."""

from pathlib import Path

from efo_service.multilang.credentials import ROWS
from efo_service.multilang.options import OPTIONS
from tests.paths import ROOT

PAGE = Path(ROOT, "docs", "kcl.md").read_text().splitlines()


def test_the_page_has_each_property_as_it_is():
    rows = [line for line in PAGE if line.startswith("| `") and line.count("|") == 5]
    assert rows == [option.row for option in OPTIONS.values()]


def test_the_page_has_each_form_of_credentials():
    for names, note in ROWS:
        assert f"| {', '.join(f'`{name}`' for name in sorted(names))} | {note} |" in PAGE
