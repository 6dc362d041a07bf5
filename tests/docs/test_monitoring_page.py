"""docs/monitoring.md lists every instrument and every condition, as the code defines them."""

from __future__ import annotations

from typing import get_args

from efo.health import Condition
from efo.telemetry import instruments, producer_instruments
from tests.paths import ROOT

PAGE = (ROOT / "docs/monitoring.md").read_text()


def row_of(instrument):
    kind = instrument.kind.removeprefix("observable_").replace("_", "-")
    return f"| `{instrument.name}` | {kind} | {instrument.unit} | {instrument.description} |"


def test_the_page_has_one_row_for_each_instrument_in_their_order():
    table = PAGE.split("<!-- metrics -->")[1].split("<!-- end -->")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [row_of(instrument) for instrument in instruments.ALL]


def test_the_page_has_one_row_for_each_instrument_of_a_producer():
    table = PAGE.split("<!-- producer metrics -->")[1].split("<!-- end of producer metrics -->")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [row_of(instrument) for instrument in producer_instruments.OWN]


def test_the_page_explains_every_condition():
    table = PAGE.split("## Is a shard read?")[1].split("## `/readyz`")[0]
    rows = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert rows == list(get_args(Condition))
