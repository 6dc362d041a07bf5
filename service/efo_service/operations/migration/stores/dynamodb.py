"""Rows in a table of DynamoDB."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from efo.leases.stores.dynamodb.client import (
    ConditionFailedError,
    DynamoDbTable,
    TableLocation,
    TableNotFoundError,
    open_table,
)
from efo_service.errors import UnavailableError
from efo_service.operations.migration.formats import Store
from efo_service.operations.migration.layout import Row
from efo_service.operations.migration.stores.rows import RowChangedError, RowTable


class DynamoDbRows:
    """The items of a table. `hash_key`: the name of its partition key."""

    kind: Store = "dynamodb"

    def __init__(self, table: DynamoDbTable, hash_key: str) -> None:
        self.name = f"DynamoDB table {table.name!r}"
        self._table = table
        self._hash_key = hash_key

    async def rows(self, _selection: str) -> Sequence[Row]:
        """Scan the table with consistent reads."""
        items: list[Row] = []
        start: dict[str, Any] = {}
        while True:
            page = await self._table.call("scan", ConsistentRead=True, **start)
            items += page["Items"]
            if "LastEvaluatedKey" not in page:
                return items
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    async def replace_rows(self, rows: Sequence[tuple[Row, Row | None]]) -> None:
        """Put each item, if the present one is as it was read."""
        for row, old in rows:
            guard = _unchanged(old) if old else {"ConditionExpression": f"attribute_not_exists({self._hash_key})"}
            try:
                await self._table.call("put_item", Item=row, **guard)
            except ConditionFailedError as failure:
                if not failure.was_retried:
                    raise RowChangedError(f"{self.name}, {row[self._hash_key]}") from None


def _unchanged(old: Row) -> dict[str, Any]:
    """Return the condition that an item has these attributes."""
    names = {f"#n{index}": name for index, name in enumerate(old)}
    values = {f":v{index}": value for index, value in enumerate(old.values())}
    condition = " AND ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
    return {
        "ConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }


@asynccontextmanager
async def open_dynamodb_rows(name: str, location: TableLocation) -> AsyncIterator[RowTable]:
    """Open a table. Raises UnavailableError if it does not exist, ConfigurationError, LeaseStoreUnavailableError."""
    async with open_table(name, location) as table:
        try:
            description = (await table.call("describe_table"))["Table"]
        except TableNotFoundError as error:
            raise UnavailableError(f"{error}: check the name of the table, the region and the account") from None
        [hash_key] = [part["AttributeName"] for part in description["KeySchema"] if part["KeyType"] == "HASH"]
        yield DynamoDbRows(table, hash_key)
