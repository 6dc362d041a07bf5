"""Looks twice at the rows of another library: what changes in between is written by a running application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import trio

from efo_service.errors import UsageError
from efo_service.operations.migration.layout import Layout, RowsSnapshot, Scope, changes, read_rows
from efo_service.operations.migration.stores.rows import RowTable

_SHOWN: Final = 5


async def look(store: RowTable, layout: Layout, scope: Scope) -> RowsSnapshot:
    """Read all rows of the application. Raises what the store raises."""
    return read_rows(await store.rows(layout.selection(scope)), layout, scope)


async def look_twice(
    store: RowTable, layout: Layout, scope: Scope, seconds: float, show: Callable[[float], None]
) -> RowsSnapshot:
    """Read all rows, wait, and read them again; return the second snapshot, with a problem if anything has changed.

    `show`: gets the number of seconds before the wait.
    """
    first = await look(store, layout, scope)
    if not first.found:
        return first
    show(seconds)
    await trio.sleep(seconds)
    second = await look(store, layout, scope)
    if changed := changes(first, second):
        problem = (
            f"the application runs: {len(changed)} rows changed within {seconds:g} s, such as "
            f"{', '.join(changed[:_SHOWN])}: stop it first"
        )
        return replace(second, problems=(*second.problems, problem))
    return second


async def refuse_changes(store: RowTable, layout: Layout, scope: Scope, snapshot: RowsSnapshot) -> None:
    """Raise UsageError if a row has changed since a snapshot, as while an operator was asked."""
    if changed := changes(snapshot, await look(store, layout, scope)):
        raise UsageError(
            f"the application runs: {', '.join(changed[:_SHOWN])} changed since the report: stop it, and run the "
            "command again"
        )
