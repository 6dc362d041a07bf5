"""`efo top`: shows what a running service does, again and again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.live import Live
from rich.text import Text

from efo.checks import printable
from efo_service.commands.options import ConfigFile, Json
from efo_service.commands.output import print_table, write_json, write_note
from efo_service.config.loading import load_all
from efo_service.errors import UnavailableError
from efo_service.top.drawing import draw, draw_within, quit_key
from efo_service.top.sample import Samples, fetch, refreshes
from efo_service.top.view import Sort, View, view

_LONGEST_INTERVAL = 3600.0


def _check_interval(_type: object, seconds: object) -> None:
    if not (isinstance(seconds, int | float) and 0 < seconds <= _LONGEST_INTERVAL):
        raise ValueError(f"Must be more than 0 and at most {_LONGEST_INTERVAL:.0f} seconds.")  # cyclopts reports it


def _check_limit(_type: object, limit: object) -> None:
    if isinstance(limit, int) and limit < 1:
        raise ValueError("Must be 1 or more.")


def top(
    *,
    config: ConfigFile = None,
    interval: Annotated[
        float, Parameter(validator=_check_interval, help="Seconds between two refreshes; rates are measured over them.")
    ] = 2.0,
    sort: Annotated[
        Sort,
        Parameter(help="Which shards come first: the highest lag, the highest rate of records, or by name."),
    ] = "lag",
    limit: Annotated[
        int | None, Parameter(validator=_check_limit, help="Show this many shards at most. Default: all.")
    ] = None,
    once: Annotated[bool, Parameter(negative="", help="Print one table after one interval, and end.")] = False,
    as_json: Json = False,
) -> None:
    """Show what the service on [service] host and port does, shard by shard, until q or Ctrl-C."""
    service = load_all(config).service
    console = Console(highlight=False, markup=False)
    on_terminal = sys.stdout.isatty() and console.is_terminal and not console.is_dumb_terminal

    lasts = not once and (on_terminal or as_json)

    def viewed(samples: Samples) -> View:
        shown = view(samples.sample, samples.previous, sort)
        return shown if limit is None else shown.limited(limit)

    try:
        with quit_key(sys.stdin if on_terminal else None) as wait:
            found = refreshes(
                partial(fetch, service.address),
                partial(wait, interval),
                keep_trying=lasts and on_terminal,
            )
            if lasts and not as_json:
                _redraw(found, viewed, console)
                return
            for samples in _measured(found):
                _print(viewed(samples), as_json=as_json)
                if not lasts:
                    return
    except KeyboardInterrupt:
        return  # the way to end it
    except BrokenPipeError:  # the reader closed the pipe: discard what Python flushes at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _redraw(found: Iterator[Samples | UnavailableError], viewed: Callable[[Samples], View], console: Console) -> None:
    """Draw in place what was found, until it ends."""
    with Live(console=console, auto_refresh=False) as live:
        for samples in found:
            if isinstance(samples, UnavailableError):
                live.update(Text(f"{printable(str(samples))}; trying again", style="bold red"), refresh=True)
            else:
                live.update(draw_within(viewed(samples), console), refresh=True)


def _print(shown: View, *, as_json: bool) -> None:
    if as_json:
        write_json(msgspec.to_builtins(shown))
    else:
        print_table(draw(shown))
    sys.stdout.flush()


def _measured(found: Iterator[Samples | UnavailableError]) -> Iterator[Samples]:
    """Yield the samples that have a previous one, and so rates. Tell of the others on stderr, if there is none."""
    for samples in found:
        if isinstance(samples, UnavailableError):
            write_note(f"{samples}; trying again")
        elif samples.previous is not None:
            yield samples
