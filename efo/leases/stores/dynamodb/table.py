"""Creates the lease table, or checks the key of an existing one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from efo.checks import check_count
from efo.errors import ConfigurationError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases.stores.dynamodb.client import (
    ConditionFailedError,
    DynamoDbTable,
    TableDeniedError,
    TableExistsError,
    TableNotFoundError,
)
from efo.leases.stores.dynamodb.items import KEY

POLL_INTERVAL: Final = 1.0
"""Seconds between two checks of a table that is being created."""
CREATION_TIMEOUT: Final = 120.0
"""Seconds for the creation of the table. It usually takes about ten."""
_USABLE: Final = frozenset({"ACTIVE", "UPDATING"})
"""A table can be used while its indexes or its capacity are updated."""
_NEVER: Final = f"attribute_exists({KEY}) AND attribute_not_exists({KEY})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """How to create the table if it is missing: with on-demand billing (PAY_PER_REQUEST), as KCL does by default.

    `tags`: values by name.
    `deletion_protection`: the table cannot be deleted until this is switched off.
    `point_in_time_recovery`: continuous backups.
    `read_capacity`, `write_capacity`: units per second of a table with provisioned capacity (PROVISIONED) instead; both
    or neither. A write unit is one write of a lease per second, a read unit a scan of some 24 leases per second.

    An existing table is not changed. Raises ConfigurationError.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    deletion_protection: bool = False
    point_in_time_recovery: bool = False
    read_capacity: int | None = None
    write_capacity: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("read_capacity", self.read_capacity), ("write_capacity", self.write_capacity)):
            if value is not None:
                check_count(name, value, unit=" capacity units, or None")
        if (self.read_capacity is None) != (self.write_capacity is None):
            raise ConfigurationError(
                f"read_capacity={self.read_capacity}, write_capacity={self.write_capacity}: set both for a table with"
                " provisioned capacity, or none of them for on-demand billing"
            )

    def billing(self) -> Mapping[str, Any]:
        """Return the arguments of CreateTable that say how the table is paid for."""
        if self.read_capacity is None:
            return {"BillingMode": "PAY_PER_REQUEST"}
        capacity = {"ReadCapacityUnits": self.read_capacity, "WriteCapacityUnits": self.write_capacity}
        return {"BillingMode": "PROVISIONED", "ProvisionedThroughput": capacity}


async def prepare(table: DynamoDbTable, new: NewTable | None) -> None:
    """Wait until the table can be used. Create it first if it is missing and `new` is given.

    Raises LeaseStoreCorruptError if its key is not that of a lease table, and LeaseStoreUnavailableError.
    """
    description = await _describe(table)
    is_created = False
    if description is None:
        if new is None:
            raise _missing(table)
        is_created = await _create(table, new)
    with trio.move_on_after(CREATION_TIMEOUT):
        _check(table, await _until_usable(table, description))
        if is_created and new is not None and new.point_in_time_recovery:
            await table.call(
                "update_continuous_backups", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
            )
        return
    raise LeaseStoreUnavailableError(
        f"{table} is not ready after {CREATION_TIMEOUT:.0f} s: check its status in the console"
    )


async def inspect(table: DynamoDbTable, new: NewTable | None) -> bool:
    """Return whether the table exists. Raises as `prepare` does, and if the table cannot be used yet."""
    description = await _describe(table)
    if description is None:
        if new is None:
            raise _missing(table)
        return False
    if (status := description["TableStatus"]) not in _USABLE:
        raise LeaseStoreUnavailableError(f"{table} is {status}: check its status in the console")
    _check(table, description)
    return True


async def denied_writes(table: DynamoDbTable, key: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the writes that the credentials do not permit, by trying each with a condition that is never true.

    So nothing is written, whether the row exists or not. Raises LeaseStoreUnavailableError.
    """
    denied = []
    for operation, name, arguments in (
        ("put_item", "PutItem", {"Item": key}),
        ("update_item", "UpdateItem", {"Key": key}),
        ("delete_item", "DeleteItem", {"Key": key}),
    ):
        try:
            await table.call(operation, ConditionExpression=_NEVER, **arguments)
        except ConditionFailedError:
            pass
        except TableDeniedError:
            denied.append(name)
    return tuple(denied)


def _missing(table: DynamoDbTable) -> LeaseStoreUnavailableError:
    return LeaseStoreUnavailableError(f"{table} does not exist: create it, or let efo create it")


async def _until_usable(table: DynamoDbTable, description: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the description of the table once it can be used. A new table may not be visible at once."""
    pause = 0.0
    while description is None or description["TableStatus"] not in _USABLE:
        await trio.sleep(pause)
        pause = POLL_INTERVAL
        description = await _describe(table)
    return description


async def _describe(table: DynamoDbTable) -> Mapping[str, Any] | None:
    try:
        description: Mapping[str, Any] = (await table.call("describe_table"))["Table"]
    except TableNotFoundError:
        return None
    return description


async def _create(table: DynamoDbTable, new: NewTable) -> bool:
    """Create the table; return False if another worker created it first."""
    try:
        await table.call(
            "create_table",
            AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
            **new.billing(),
            DeletionProtectionEnabled=new.deletion_protection,
            Tags=[{"Key": name, "Value": value} for name, value in new.tags.items()],
        )
    except TableExistsError:
        return False
    return True


def _check(table: DynamoDbTable, description: Mapping[str, Any]) -> None:
    schema = [(part["AttributeName"], part["KeyType"]) for part in description["KeySchema"]]
    types = {part["AttributeName"]: part["AttributeType"] for part in description["AttributeDefinitions"]}
    if schema != [(KEY, "HASH")] or types.get(KEY) != "S":
        found = ", ".join(f"{name} ({types.get(name)}, {kind})" for name, kind in schema)
        raise LeaseStoreCorruptError(
            f"{table} is not a lease table: its key is {found}, not {KEY} (S, HASH): use another table"
        )
