"""docs/fake.md: its table of faults is complete. test_examples.py runs its examples."""

from __future__ import annotations

import re
import typing

from efo.testing.faults.kinds import Fault
from tests.paths import ROOT

PAGE = (ROOT / "docs/fake.md").read_text()


def test_the_table_contains_every_fault():
    table = dict(re.findall(r"^\| `(\w+)\([^`]*\)` \| `([a-z-]+)` \|", PAGE, re.MULTILINE))
    kinds = {kind.__name__: kind.__struct_config__.tag for kind in typing.get_args(Fault)}
    assert table == kinds
