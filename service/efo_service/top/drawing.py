"""Draws a view, whole or within the lines of a terminal. No identifier is cut, and what is left out is counted."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from efo.checks import printable
from efo_service.top.view import Row, View

_NUMBERS = ("lag", "records/s", "bytes/s", "event\nage", "checkpoint\nage")


def draw(view: View, problems: int | None = None) -> Group:
    """Return what to print for a view. `problems`: how many to show at most; None: all."""
    return Group(*_parts(view, problems))


def draw_within(view: View, console: Console) -> Group:
    """Return what to print on a terminal: no more problems and shards than it has lines for.

    The problems take at most half of the lines. A narrow terminal folds what does not fit into its column.
    """
    height = console.height - 1  # the cursor's line
    half = _fitting(len(view.problems), height // 2, lambda count: _lines(draw(view.limited(0), count), console))
    shown = min(len(view.shards), height)
    count = _fitting(shown, height, lambda count: _lines(draw(view.limited(count), half), console))
    return draw(view.limited(count), half)


def header(view: View) -> str:
    """Return the line about the whole service."""
    who = f"worker {view.worker_id}" if view.worker_id is not None else f"{view.workers or 0} workers"
    conditions = ", ".join(f"{count} {condition}" for condition, count in view.conditions.items())
    return (
        f"{view.application or 'efo'}, {who}: {'ready' if view.ready else 'not ready'}; "
        f"lease table {view.lease_table}; shards: {conditions or 'none'}"
    )


def format_seconds(seconds: float | None) -> str:
    """Return a duration as its two largest units, or "-" for None."""
    if seconds is None:
        return "-"
    if seconds < 60:  # noqa: PLR2004 - seconds of a minute
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def _parts(view: View, problems: int | None) -> Iterator[RenderableType]:
    yield Text(printable(header(view)), style="bold green" if view.ready else "bold red")
    shown = view.problems[:problems]
    for problem in shown:
        yield Text(f"! {printable(problem)}", style="yellow")
    if len(shown) < len(view.problems):
        yield Text(f"! {_more(len(view.problems) - len(shown), 'problem', bool(shown))}", style="yellow")
    table = Table(box=None, pad_edge=False)
    # The header has the name of a single worker, and a terminal of 80 columns needs the room.
    for name in (
        *(("stream",) if _has_streams(view) else ()),
        "shard",
        *(() if view.worker_id else ("worker",)),
        "condition",
        "subscription",
    ):
        table.add_column(name, overflow="fold")
    for name in _NUMBERS:
        table.add_column(name, overflow="fold", justify="right")
    for row in view.shards:
        names = map(printable, _names(view, row))
        table.add_row(*names, *_numbers(row), style=None if row.condition == "current" else "red")
    yield table
    if view.shards_not_shown:
        yield Text(f"{_more(view.shards_not_shown, 'shard', bool(view.shards))} not shown")


def _names(view: View, row: Row) -> tuple[str, ...]:
    worker = () if view.worker_id else (row.worker_id or "-",)
    stream = (row.stream or "-",) if _has_streams(view) else ()
    return (*stream, row.shard_id, *worker, row.condition, _subscription(row))


def _subscription(row: Row) -> str:
    """Return the state of the subscription; of a polled shard that it is, and the state of its polling if not live."""
    if row.read_mode != "polling":
        return row.subscription
    return "polled" if row.subscription == "live" else f"polled, {row.subscription}"


def _has_streams(view: View) -> bool:
    return any(row.stream is not None for row in view.shards)


def _numbers(row: Row) -> tuple[str, ...]:
    records, size = row.records_per_second, row.bytes_per_second
    return (
        format_seconds(row.lag_seconds),
        "-" if records is None else f"{records:,.1f}",
        "-" if size is None else decimal(round(size)),
        format_seconds(row.last_event_age_seconds),
        format_seconds(row.checkpoint_age_seconds),
    )


def _more(count: int, what: str, any_shown: bool) -> str:  # noqa: FBT001 - private
    return f"{count} {'more ' if any_shown else ''}{what}{'' if count == 1 else 's'}"


def _fitting(count: int, height: int, lines: Callable[[int], int]) -> int:
    """Return the highest number up to `count` whose drawing has `height` lines at most; 0 if none has."""
    if lines(count) <= height:  # all: without the line about the rest
        return count
    return max(0, bisect_right(range(count), height, key=lines) - 1)


def _lines(drawing: Group, console: Console) -> int:
    return len(console.render_lines(drawing, pad=False))


_SLICE: Final = 0.2
"""Seconds of one system call at most. A signal that comes just before a call does not end it, and is seen after it."""


@contextmanager
def quit_key(stdin: TextIO | None) -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits for some seconds, or until q is pressed, and returns whether it was.

    A terminal passes on keys at once, without echo, until the context ends. Another stdin has no keys.
    """
    if stdin is None or not stdin.isatty():
        yield _sleep
        return
    terminal = stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield partial(_wait, terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _SLICE))
    return False


def _wait(terminal: int, seconds: float) -> bool:
    end, left = time.monotonic() + seconds, seconds
    while left >= 0:
        if select.select([terminal], [], [], min(left, _SLICE))[0]:
            keys = os.read(terminal, 1024)
            if not keys or b"q" in keys.lower():  # no keys: the terminal is gone
                return True
        left = end - time.monotonic()
    return False
