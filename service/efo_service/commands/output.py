"""What commands write: JSON, tables, lines and notes. Control characters are escaped: names may be anybody's."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.table import Table as RichTable

from efo.checks import printable

_WIDTH: Final = 10_000
"""Columns of a table at most."""


class TextTable(RichTable):
    """A table of texts."""

    def __init__(self, *columns: str, title: str = "", show_header: bool = True) -> None:
        super().__init__(*columns, title=printable(title) or None, title_justify="left", show_header=show_header)

    def add_row(self, *cells: str) -> None:  # type: ignore[override]
        """Add a row."""
        super().add_row(*map(printable, cells))


def write_json(value: Any) -> None:
    """Write one JSON document on one line to stdout."""
    sys.stdout.write(json.dumps(value) + "\n")


def write_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table to stdout."""
    table = TextTable(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    print_table(table)


def print_table(table: RenderableType) -> None:
    """Print a table, or a group with one, to stdout, as wide as its contents, so that no identifier is cut.

    Pipes and narrow terminals get the same.
    """
    Console(highlight=False, markup=False, width=_WIDTH).print(table)


def write_line(text: str) -> None:
    """Write a line to stdout."""
    Console(highlight=False, soft_wrap=True).print(printable(text), markup=False)


def write_note(text: str) -> None:
    """Write a note about something that the operator may not expect to stderr."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"note: {printable(text)}", markup=False)


def format_time(seconds: float | None) -> str:
    """Return a time in seconds since the epoch as text; empty for None."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
