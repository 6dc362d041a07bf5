"""KCL 3.5's migration from three tables to one in a fleet with a worker of efo, and its assignment of leases by CPU.

Its phases wait for an hour, the last for a day, counted from when the leader wrote the last one: that time is set back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from efo.leases.stores.dynamodb.client import DynamoDbTable
from proofs.interop.kcl.scenario import STREAMS, Scenario
from proofs.interop.kcl.workers import APPLICATION, Worker

_STATES: Final = f"{APPLICATION}-CoordinatorState"
_METRICS: Final = f"{APPLICATION}-WorkerMetricStats"
_KEY: Final = {"key": {"S": "TableMigration3.5"}}
_BAKED: Final = 86_401_000
"""A day, in milliseconds: KCL's longest time for a phase, by default."""
_OPEN: Final = sum(STREAMS.values())
SETTLED: Final = 60.0
"""Seconds in which no lease may move. KCL balances once in three fail-over times."""


class MigrationScenario(Scenario):
    """KCL with three tables; efo joins; both are replaced, KCL by one that migrates to a single table; KCL stops."""

    async def _run_steps(self, nursery: trio.Nursery) -> None:
        async with self._scanning(nursery):
            await self._make_tables()
            by_cpu = {"INTEROP_BY_CPU": "true"}
            self._progress("starting KCL (takes about two minutes)")
            one = await self._start(Worker.start_kcl, "kcl-1", nursery, **by_cpu)
            await self._until("KCL is subscribed to every shard", self._streams.all_subscribed)
            nursery.start_soon(self._load)
            efo = await self._start(Worker.start_efo, "efo-1", nursery)
            two = await self._start(Worker.start_kcl, "kcl-2", nursery, **by_cpu)
            await self._until("efo-1 holds some leases", lambda: self._held_by("efo-1") > 0)
            await self._until_status("INIT")
            await self._set_back()
            await self._until_status("DEPLOYED")
            by_cpu["INTEROP_MIGRATES"] = "true"
            new = [await self._start(Worker.start_kcl, name, nursery, **by_cpu) for name in ("kcl-3", "kcl-4")]
            await self._until_reported("kcl-3", "kcl-4")
            for worker in (one, two, efo):
                await self._end(worker, worker.stop, "stopped")
            await self._until("KCL holds every lease", lambda: self._held_by("kcl-3") + self._held_by("kcl-4") >= _OPEN)
            efo = await self._start(Worker.start_efo, "efo-2", nursery)
            await self._until("efo-2 holds some leases", lambda: self._held_by("efo-2") > 0)
            await self._until_status("PENDING")
            await self._set_back()
            await self._until_status("COMPLETE")
            self._progress(self._streams.reshard())
            await self._until("the shards are split and merged, and their children are read", self._is_resharded)
            await self._until_settled()
            for worker in new:
                await self._end(worker, worker.stop, "stopped")
            await self._until("efo-2 holds every lease", lambda: self._holds_all("efo-2"))
            self._load_scope.cancel()
            await self._until("every record is reported", self._all_reported)
            await self._end(efo, efo.stop, "stopped")

    async def _make_tables(self) -> None:
        """Make the two tables that KCL up to 3.4 makes: only an application that has them migrates."""
        for name, key in ((_STATES, "key"), (_METRICS, "wid")):
            await self._leases.beside(name).call(
                "create_table",
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
                KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
                BillingMode="PAY_PER_REQUEST",
            )

    @property
    def _leases(self) -> DynamoDbTable:
        return next(iter(self._streams.stores.values()))._table  # noqa: SLF001 - its client

    async def _state(self) -> dict[str, Any]:
        response = await self._leases.beside(_STATES).call("get_item", Key=_KEY, ConsistentRead=True)
        item: dict[str, Any] = response.get("Item", {})
        return item

    async def _until_status(self, status: str) -> None:
        """Wait until the migration has this status."""
        reached = f"TABLE_MIGRATION_STATUS_{status}"

        async def is_reached() -> bool:
            return bool((await self._state()).get("tm", {}).get("S") == reached)

        await self._until_seen(f"the migration is {status}", is_reached)

    async def _until_reported(self, *workers: str) -> None:
        """Wait until these workers report their load in the lease table."""

        async def is_reported() -> bool:
            rows = (await self._leases.call("scan", ConsistentRead=True))["Items"]
            return {row["leaseKey"]["S"] for row in rows} >= {*workers}

        await self._until_seen(f"{' and '.join(workers)} report their load", is_reported)

    async def _until_seen(self, what: str, look: Callable[[], Awaitable[bool]]) -> None:
        """Wait until `look` returns True."""
        is_seen = False

        async def look_again() -> None:
            nonlocal is_seen
            while not is_seen:
                await trio.sleep(1.0)
                is_seen = await look()

        async with trio.open_nursery() as looking:
            looking.start_soon(look_again)
            await self._until(what, lambda: is_seen)

    async def _set_back(self) -> None:
        """Let the time that KCL waits in this status have passed."""
        at = int((await self._state())["mts"]["N"]) - _BAKED
        await self._leases.beside(_STATES).call(
            "update_item",
            Key=_KEY,
            UpdateExpression="SET mts = :at",
            ExpressionAttributeValues={":at": {"N": str(at)}},
        )

    async def _until_settled(self) -> None:
        """Wait until no lease has moved for a while, while both libraries balance."""
        moves, since = -1, 0.0

        def is_settled() -> bool:
            nonlocal moves, since
            if moves != len(self._moves.moves):
                moves, since = len(self._moves.moves), trio.current_time()
            return trio.current_time() > since + SETTLED

        await self._until(f"no lease moves for {SETTLED:.0f} s", is_settled)
        self._progress(f"holders: {self._holders}")
