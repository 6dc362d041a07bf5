"""Makes the lease table, or sees that the one that is there can be one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from efo.errors import LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases.stores.dynamodb.client import Table, TableExistsError, TableNotFoundError
from efo.leases.stores.dynamodb.items import KEY

POLL: Final = 1.0
"""Seconds between two looks at a table that is being made."""
PATIENCE: Final = 120.0
"""Seconds that the making of a table may take. It takes some ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """How to make the table if it is not there: billed on demand (PAY_PER_REQUEST), as KCL does by default.

    `tags`: names and values. `deletion_protection`: the table cannot be deleted until this is switched off.
    `point_in_time_recovery`: continuous backups. One that is there already is left as it is.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    deletion_protection: bool = False
    point_in_time_recovery: bool = False


async def prepare(table: Table, new: NewTable | None) -> None:
    """Wait until the table can be used; make it first, if it is not there and `new` says how.

    Raises LeaseStoreCorruptError where its key is not a lease table's, and LeaseStoreUnavailableError.
    """
    description = await _describe(table)
    is_made = False
    if description is None:
        if new is None:
            raise LeaseStoreUnavailableError(f"{table}: there is no such table; make it, or let efo make it")
        is_made = await _create(table, new)
    with trio.move_on_after(PATIENCE):
        _check(table, await _until_usable(table, description))
        if is_made and new is not None and new.point_in_time_recovery:
            await table.call(
                "update_continuous_backups", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
            )
        return
    raise LeaseStoreUnavailableError(f"{table}: not ready after {PATIENCE:.0f} s; see its status in the console")


async def _until_usable(table: Table, description: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the description of the table once it can be used. A new one may even take a while to appear."""
    pause = 0.0
    # A table whose indexes or capacity are being changed takes calls as ever.
    while description is None or description["TableStatus"] not in {"ACTIVE", "UPDATING"}:
        await trio.sleep(pause)
        pause = POLL
        description = await _describe(table)
    return description


async def _describe(table: Table) -> Mapping[str, Any] | None:
    try:
        description: Mapping[str, Any] = (await table.call("describe_table"))["Table"]
    except TableNotFoundError:
        return None
    return description


async def _create(table: Table, new: NewTable) -> bool:
    """Make the table; return whether it was us: another worker may have been quicker."""
    try:
        await table.call(
            "create_table",
            AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            DeletionProtectionEnabled=new.deletion_protection,
            Tags=[{"Key": name, "Value": value} for name, value in new.tags.items()],
        )
    except TableExistsError:
        return False
    return True


def _check(table: Table, description: Mapping[str, Any]) -> None:
    schema = [(part["AttributeName"], part["KeyType"]) for part in description["KeySchema"]]
    types = {part["AttributeName"]: part["AttributeType"] for part in description["AttributeDefinitions"]}
    if schema != [(KEY, "HASH")] or types.get(KEY) != "S":
        found = ", ".join(f"{name} ({types.get(name)}, {kind})" for name, kind in schema)
        raise LeaseStoreCorruptError(
            f"{table}: it is no lease table: its key is {found}, where KCL's is {KEY} (S, HASH). Name another table"
        )
