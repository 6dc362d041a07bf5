"""This worker's row among the worker metrics of KCL 3, without which KCL's own migrations wait.

A leader of KCL 3 goes on with a migration when each owner of a lease reports worker metrics, and says there which
features it supports. efo reports that its load is unknown (-1), as a worker of KCL does that cannot measure it: then
the leader neither assigns leases to it nor takes any from it, and efo balances the number of leases by itself.

The row is where KCL's workers write theirs: in the lease table, since the migration of KCL 3.5 or in an application
that began with it, otherwise in a table of its own.

Source: WorkerMetricStats, MigrationAwareLAMDataManager and MigrationReadyMonitor of KCL 3.5.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import trio

from efo.errors import EfoError
from efo.leases.stores.dynamodb.client import DynamoDbTable, TableNotFoundError
from efo.leases.stores.dynamodb.items import ENTITY, KEY, Item

PERIOD: Final = 30.0
"""Seconds between two reports: KCL's default. To KCL, a worker whose row is twice as old is gone."""
PATIENCE: Final = 1.0
"""Seconds that a report may take: it must not delay lease scans."""
WORKER_METRICS: Final = "WORKER_METRIC_STATS"
"""The entity type of such rows."""
_WORKER: Final = "wid"
"""The partition key of their own table."""
_INDEX: Final = "LeaseOwnerToLeaseKeyIndex"
"""The index that KCL 3 adds to a lease table."""
_SINGLE_TABLE_MIGRATION: Final = 1
"""KCL's number of the latest feature that a worker must support. efo reads leases in any phase of it."""
_LIBRARY: Final = {"M": {"library": {"S": "efo"}}}

_LOG: Final = logging.getLogger("efo.aws")


class WorkerMetrics:
    """Reports a worker. `worker_id`: set when it first owns a lease. `own_table`: the name of the rows' own table."""

    def __init__(self, leases: DynamoDbTable, own_table: str | None = None) -> None:
        self.worker_id: str | None = None
        self._leases = leases
        self._own = leases.beside(own_table or f"{leases.name}-WorkerMetricStats")
        self._next_at = -1.0
        self._is_shared = False
        self._has_failed = False

    async def report(self, items: Iterable[Item]) -> None:
        """Write the row if that is due, and a worker of KCL 3 may read it. `items`: those of a lease scan.

        A failure is logged once, and ends nothing: only migrations of KCL need the row.
        """
        if self.worker_id is None or trio.current_time() < self._next_at:
            return
        self._next_at = trio.current_time() + PERIOD
        failure: object = f"no response within {PATIENCE:g} s"
        with trio.move_on_after(PATIENCE):
            try:
                await self._write(self.worker_id, items, int(time.time()))
            except EfoError as error:
                failure = error
            else:
                self._has_failed = False
                return
        if not self._has_failed:
            self._has_failed = True
            _LOG.warning("the worker metrics cannot be written, and migrations of KCL 3 wait for them: %s", failure)

    async def _write(self, worker_id: str, items: Iterable[Item], now: int) -> None:
        if any(_is_of_kcl(item, now) for item in items):
            await self._leases.call("update_item", Key={KEY: {"S": worker_id}}, **_update(now))
        elif await self._is_shared_with_kcl():
            with suppress(TableNotFoundError):  # KCL has left, or has not begun
                await self._own.call("update_item", Key={_WORKER: {"S": worker_id}}, **_update(now))

    async def _is_shared_with_kcl(self) -> bool:
        """Return whether KCL 3 uses the lease table, or has used it."""
        if not self._is_shared:
            description = (await self._leases.call("describe_table"))["Table"]
            indexes = description.get("GlobalSecondaryIndexes", ())
            self._is_shared = any(index["IndexName"] == _INDEX for index in indexes)
        return self._is_shared


def _is_of_kcl(item: Item, now: int) -> bool:
    """Return whether this is the row of a worker of KCL that runs."""
    if item.get(ENTITY, {}).get("S") != WORKER_METRICS or item.get("properties") == _LIBRARY:
        return False
    return int(item.get("lut", {}).get("N", 0)) > now - 2 * PERIOD


def _update(now: int) -> Mapping[str, Any]:
    """Return the arguments of UpdateItem: a CPU load that is unknown, and the features that are supported."""
    seconds = {"N": str(now)}
    values = {
        "entityType": {"S": WORKER_METRICS},
        "lut": seconds,
        "sts": {"M": {"C": {"L": [{"N": "-1"}]}}},
        "opr": {"M": {"C": {"L": [{"N": "100"}]}}},
        "properties": _LIBRARY,
        "sup": {"N": str(_SINGLE_TABLE_MIGRATION)},
        "slu": seconds,
    }
    return {
        "UpdateExpression": "SET " + ", ".join(f"#{name} = :{name}" for name in values),
        "ExpressionAttributeNames": {f"#{name}": name for name in values},
        "ExpressionAttributeValues": {f":{name}": value for name, value in values.items()},
    }
