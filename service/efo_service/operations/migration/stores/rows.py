"""A store of another library's checkpoints, from its URL: rows in DynamoDB, Redis, PostgreSQL or MySQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from efo_service.errors import UsageError
from efo_service.operations.migration.formats import Store
from efo_service.operations.migration.layout import Row


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
