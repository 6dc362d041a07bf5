"""The scenario: KCL reads, efo joins, shards are split and merged, efo is killed, another efo joins, KCL stops."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from efo.exception_groups import collapse_groups
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.model import Checkpoint
from efo.testing import FakeKinesis, FakeSettings
from proofs.interop.clients.load import data_of, key_of
from proofs.interop.clients.runner import InteropError, build
from proofs.interop.kcl.comparison import EFO, KCL, Comparison, Moves, compare
from proofs.interop.kcl.workers import APPLICATION, KCL_CLIENT, Worker, environment
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local

SHARDS: Final = 4
STREAM: Final = "shared"
_LIFE: Final = 60.0
"""Lifetime of a subscription in seconds: short, so that each library renews some of them."""
_TIMEOUT: Final = 300.0
"""Timeout of each step in seconds: KCL first elects a leader, and assigns leases slowly."""
_CHUNK: Final = 10
_PAUSE: Final = 0.2
_SCAN_INTERVAL: Final = 0.5
_POLL: Final = 0.2
_LINGER: Final = 3.0

_ATTRIBUTES: Final = {":time": {"N": "1700000000.25"}, ":unknown": {"S": "kept"}}

Progress = Callable[[str], None]
Start = Callable[[str, dict[str, str]], Awaitable[Worker]]


async def run_scenario(progress: Progress, *, efo_makes_table: bool = False) -> Comparison:
    """Run the scenario. Raises InteropError, and NotInstalledError if DynamoDB Local is not installed.

    `efo_makes_table`: efo creates the lease table, instead of KCL. KCL is the first worker in both cases.
    """
    progress("building KCL's worker")
    await build(KCL_CLIENT)
    serving = serve_dynamodb_local()
    dynamodb = await trio.to_thread.run_sync(serving.__enter__)
    try:
        settings = FakeSettings(subscription_life=_LIFE)
        async with FakeKinesis(settings=settings, clock=time.time) as fake, fake.serve() as address:
            fake.create_stream(STREAM, SHARDS)
            with credentials():
                store = DynamoDbLeaseStore(APPLICATION, endpoint_url=dynamodb, timeout=30.0)
                if efo_makes_table:
                    async with store:
                        progress("efo has created the lease table")
                return await Scenario(fake, environment(STREAM, address, dynamodb), progress).run(store)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(serving.__exit__, None, None, None)


class Scenario:
    """One run: the fake, the workers and the steps."""

    def __init__(self, fake: FakeKinesis, environment: dict[str, str], progress: Progress) -> None:
        self._fake = fake
        self._environment = environment
        self._progress = progress
        self._moves = Moves()
        self._holders: dict[str, str] = {}
        self._finished: set[str] = set()
        self._workers: list[Worker] = []
        self._running: list[Worker] = []
        self._load_scope = trio.CancelScope()

    async def run(self, store: DynamoDbLeaseStore) -> Comparison:
        """Run all steps, and compare what the workers reported with what was put."""
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                try:
                    await self._run_steps(store, nursery)
                finally:
                    with trio.CancelScope(shield=True):
                        for worker in self._running:
                            await worker.kill()
                nursery.cancel_scope.cancel()
        reported = {worker.name: worker.records for worker in self._workers}
        return compare(reported, self._fake.records(STREAM), self._moves)

    async def _run_steps(self, store: DynamoDbLeaseStore, nursery: trio.Nursery) -> None:
        self._progress("starting KCL (takes about two minutes)")
        kcl = await self._start(Worker.start_kcl, "kcl-1", nursery)
        await self._until("KCL is subscribed to every shard", self._all_subscribed)
        async with self._scanning(store, nursery):
            nursery.start_soon(self._load)
            await self._until("KCL holds every lease", lambda: self._holds_all("kcl-1"))
            await write_unknown_attributes(store)
            efo = await self._start(Worker.start_efo, "efo-1", nursery)
            await self._until("efo-1 holds its share of the leases", lambda: self._held_by("efo-1") >= SHARDS // 2)
            self._reshard()
            await self._until("the shards are split and merged, and their children are read", self._is_resharded)
            await self._end(efo, efo.kill, "killed")
            await self._until("KCL holds every lease again", lambda: self._holds_all("kcl-1"))
            efo = await self._start(Worker.start_efo, "efo-2", nursery)
            await self._until("efo-2 holds some leases", lambda: self._held_by("efo-2") > 0)
            await self._end(kcl, kcl.stop, "stopped")
            await self._until("efo-2 holds every lease", lambda: self._holds_all("efo-2"))
            self._load_scope.cancel()
            await self._until("every record is reported", self._all_reported)
            await trio.sleep(_LINGER)  # duplicates arrive in this time
            await self._end(efo, efo.stop, "stopped")
            await check_unknown_attributes(store)

    # --- actions ---------------------------------------------------------------------------------------------

    async def _start(self, start: Start, name: str, nursery: trio.Nursery) -> Worker:
        worker = await start(name, self._environment)
        self._workers.append(worker)
        self._running.append(worker)
        nursery.start_soon(worker.read_output)
        return worker

    async def _end(self, worker: Worker, end: Callable[[], Awaitable[None]], how: str) -> None:
        self._running.remove(worker)
        await end()
        self._progress(f"{worker.name} is {how} after {len(worker.records)} records")

    async def _load(self) -> None:
        number = 0
        with self._load_scope:
            while True:
                numbers = range(number, number + _CHUNK)
                self._fake.put_many(STREAM, [(key_of(n), data_of(n)) for n in numbers])
                number += _CHUNK
                await trio.sleep(_PAUSE)

    def _reshard(self) -> None:
        first, *_, lower, upper = self._fake.open_shards(STREAM)
        children = (*self._fake.split(STREAM, first), self._fake.merge(STREAM, lower, upper))
        self._progress(f"{first} is split, {lower} and {upper} are merged; children: {', '.join(children)}")

    @asynccontextmanager
    async def _scanning(self, store: DynamoDbLeaseStore, nursery: trio.Nursery) -> AsyncIterator[None]:
        async with store:
            scope = trio.CancelScope()
            nursery.start_soon(self._scan, store, scope)
            try:
                yield
            finally:
                scope.cancel()

    async def _scan(self, store: DynamoDbLeaseStore, scope: trio.CancelScope) -> None:
        with scope:
            while True:
                at = time.time_ns() // 1000
                leases = await store.list()
                self._moves.add_scan(leases, at)
                self._holders = {lease.key: lease.holder or "" for lease in leases if not lease.is_finished}
                self._finished = {lease.key for lease in leases if lease.checkpoint == Checkpoint.SHARD_END}
                await trio.sleep(_SCAN_INTERVAL)

    # --- conditions ------------------------------------------------------------------------------------------

    async def _until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition. Raise InteropError on timeout, or if a worker exited."""
        started = trio.current_time()
        while not condition():
            for worker in self._running:
                worker.check()
            if trio.current_time() > started + _TIMEOUT:
                raise InteropError(f"not within {_TIMEOUT:.0f} s: {what}; holders: {self._holders}")
            await trio.sleep(_POLL)
        moved = f"{self._moves.count(KCL, EFO)} leases moved to efo, {self._moves.count(EFO, KCL)} to KCL"
        self._progress(f"{what}, after {trio.current_time() - started:.0f} s; {moved}")

    def _all_subscribed(self) -> bool:
        return all(self._fake.subscriptions(STREAM, shard).live for shard in self._fake.open_shards(STREAM))

    def _held_by(self, name: str) -> int:
        return sum(holder == name for holder in self._holders.values())

    def _holds_all(self, name: str) -> bool:
        return self._holders.keys() >= set(self._fake.open_shards(STREAM)) and self._held_by(name) == len(self._holders)

    def _is_resharded(self) -> bool:
        opened = self._fake.open_shards(STREAM)
        return (
            self._holders.keys() == set(opened)
            and all(self._holders.values())
            and self._all_subscribed()
            and {shard for worker in self._workers for shard in _shards(worker)} >= set(opened)
        )

    def _all_reported(self) -> bool:
        put = sum(len(records) for records in self._fake.records(STREAM).values())
        return len({(record.shard, record.sequence) for worker in self._workers for record in worker.records}) >= put


async def write_unknown_attributes(store: DynamoDbLeaseStore) -> None:
    """Write two attributes to each lease row: one that only efo knows, in efo's format, and one that neither knows."""
    for lease in await store.list():
        await store._table.call(  # noqa: SLF001 - the rows as they are
            "update_item",
            Key={"leaseKey": {"S": lease.key}},
            UpdateExpression="SET efoLatestAt = :time, unknownToBoth = :unknown",
            ExpressionAttributeValues=_ATTRIBUTES,
        )


async def check_unknown_attributes(store: DynamoDbLeaseStore) -> None:
    """Raise InteropError unless the rows still have these attributes: both libraries have written the rows since."""
    rows = (await store._table.call("scan", ConsistentRead=True))["Items"]  # noqa: SLF001 - the rows as they are
    kept = [row for row in rows if (row.get("efoLatestAt"), row.get("unknownToBoth")) == tuple(_ATTRIBUTES.values())]
    if len(kept) != SHARDS:
        raise InteropError(f"only {len(kept)} of {SHARDS} lease rows kept their unknown attributes: {rows}")


def _shards(worker: Worker) -> set[str]:
    return {record.shard for record in worker.records}
