"""A store of another library's checkpoints, from its URL: rows in DynamoDB, Redis, PostgreSQL or MySQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final, Protocol

import trio

from efo_service.errors import UsageError
from efo_service.operations.migration.formats import Store
from efo_service.operations.migration.layout import Layout, Row, RowsSnapshot, Scope, changes, read_rows


class RowTable(Protocol):
    """Reads and replaces rows. `kind`: of the store. `name`: the store without secrets, for messages.

    Every method raises UnavailableError or LeaseStoreUnavailableError if the store cannot be used.
    """

    kind: Store
    name: str

    async def rows(self, selection: str) -> Sequence[Row]:
        """Return the rows that the layout selects, as of the last write."""
        ...

    async def replace_rows(self, rows: Sequence[tuple[Row, Row | None]]) -> None:
        """Write rows, each in place of a row as it was read, or of none. Raises RowChangedError.

        In one transaction where the store has them. Where not, a repetition completes what was begun.
        """
        ...


OpenRows = AbstractAsyncContextManager[RowTable]
"""Opens a store, and closes it."""


class RowChangedError(UsageError):
    """A row is no longer as it was read: the other application runs."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} changed while it was migrated: stop the application that writes it, and run the command again"
        )


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
