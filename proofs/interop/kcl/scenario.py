"""The scenario: KCL reads, efo joins, shards are split and merged, efo is killed, another efo joins, KCL stops."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import trio

from efo.exception_groups import collapse_groups
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.model import Checkpoint
from efo.testing import FakeKinesis, FakeSettings
from proofs.interop.clients.runner import InteropError, build
from proofs.interop.kcl.comparison import EFO, KCL, Comparison, Moves, compare
from proofs.interop.kcl.streams import Streams, stream_id
from proofs.interop.kcl.workers import APPLICATION, KCL_CLIENT, Worker, environment
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local

STREAMS: Final = {"shared": 4}
"""The shards of the streams, by name."""
MANY_STREAMS: Final = {"shared": 3, "second": 1}
"""The same for a multi-stream application. The first stream is resharded."""
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


async def run_scenario(
    progress: Progress,
    kind: type[Scenario] | None = None,
    *,
    efo_makes_table: bool = False,
    many_streams: bool = False,
) -> Comparison:
    """Run the scenario. Raises InteropError, and NotInstalledError if DynamoDB Local is not installed.

    `kind`: another scenario.
    `efo_makes_table`: efo creates the lease table, instead of KCL. KCL is the first worker in both cases.
    `many_streams`: the application reads two streams, and its table is a multi-stream one.
    """
    progress("building KCL's worker")
    await build(KCL_CLIENT)
    serving = serve_dynamodb_local()
    dynamodb = await trio.to_thread.run_sync(serving.__enter__)
    try:
        settings = FakeSettings(subscription_life=_LIFE)
        async with FakeKinesis(settings=settings, clock=time.time) as fake, fake.serve() as address:
            streams = MANY_STREAMS if many_streams else STREAMS
            for name, shards in streams.items():
                fake.create_stream(name, shards)
            with credentials():
                table = DynamoDbLeaseStore(APPLICATION, endpoint_url=dynamodb, timeout=30.0)
                if efo_makes_table:
                    async with table:
                        progress("efo has created the lease table")
                ids = {name: await stream_id(fake, name) if many_streams else None for name in streams}
                stores = {
                    name: DynamoDbLeaseStore(APPLICATION, endpoint_url=dynamodb, timeout=30.0, stream_id=one)
                    for name, one in ids.items()
                }
                variables = environment(streams, address, dynamodb, list(filter(None, ids.values())))
                return await (kind or Scenario)(Streams(fake, stores), variables, progress).run()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(serving.__exit__, None, None, None)


class Scenario:
    """One run: the fake, the workers and the steps."""

    def __init__(self, streams: Streams, environment: dict[str, str], progress: Progress) -> None:
        self._streams = streams
        self._environment = environment
        self._progress = progress
        self._moves = Moves()
        self._holders: dict[str, str] = {}
        self._finished: set[str] = set()
        self._workers: list[Worker] = []
        self._running: list[Worker] = []
        self._load_scope = trio.CancelScope()

    async def run(self) -> Comparison:
        """Run all steps, and compare what the workers reported with what was put."""
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                try:
                    await self._run_steps(nursery)
                finally:
                    with trio.CancelScope(shield=True):
                        for worker in self._running:
                            await worker.kill()
                nursery.cancel_scope.cancel()
        reported = {worker.name: worker.records for worker in self._workers}
        return compare(reported, self._streams.records(), self._moves)

    async def _run_steps(self, nursery: trio.Nursery) -> None:
        self._progress("starting KCL (takes about two minutes)")
        kcl = await self._start(Worker.start_kcl, "kcl-1", nursery)
        await self._until("KCL is subscribed to every shard", self._streams.all_subscribed)
        async with self._scanning(nursery):
            nursery.start_soon(self._load)
            initial = len(self._streams.open_shards())
            await self._until("KCL holds every lease", lambda: self._holds_all("kcl-1"))
            marked = await write_unknown_attributes(self._streams.stores.values())
            efo = await self._start(Worker.start_efo, "efo-1", nursery)
            await self._until("efo-1 holds its share of the leases", lambda: self._held_by("efo-1") >= initial // 2)
            self._progress(self._streams.reshard())
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
            await check_unknown_attributes(self._streams.stores.values(), marked)

    # --- actions ---------------------------------------------------------------------------------------------

    async def _start(self, start: Start, name: str, nursery: trio.Nursery, **variables: str) -> Worker:
        worker = await start(name, self._environment | variables)
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
                self._streams.put(range(number, number + _CHUNK))
                number += _CHUNK
                await trio.sleep(_PAUSE)

    @asynccontextmanager
    async def _scanning(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        async with self._streams.open_stores():
            scope = trio.CancelScope()
            nursery.start_soon(self._scan, scope)
            try:
                yield
            finally:
                scope.cancel()

    async def _scan(self, scope: trio.CancelScope) -> None:
        with scope:
            while True:
                at = time.time_ns() // 1000
                leases = await self._streams.leases()
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

    def _held_by(self, name: str) -> int:
        return sum(holder == name for holder in self._holders.values())

    def _holds_all(self, name: str) -> bool:
        return self._holders.keys() >= set(self._streams.open_shards()) and self._held_by(name) == len(self._holders)

    def _is_resharded(self) -> bool:
        opened = self._streams.open_shards()
        return (
            self._holders.keys() == set(opened)
            and all(self._holders.values())
            and self._streams.all_subscribed()
            and {shard for worker in self._workers for shard in _shards(worker)} >= set(opened)
        )

    def _all_reported(self) -> bool:
        put = sum(len(records) for records in self._streams.records().values())
        return len({(record.shard, record.sequence) for worker in self._workers for record in worker.records}) >= put


async def write_unknown_attributes(stores: Iterable[DynamoDbLeaseStore]) -> set[str]:
    """Write two attributes to each lease row: one that only efo knows, in efo's format, and one that neither knows.

    Returns the keys of the rows.
    """
    keys = set()
    for store in stores:
        for lease in await store.list():
            key = store._codec.key(lease.key)  # noqa: SLF001 - the rows as they are
            await store._table.call(  # noqa: SLF001
                "update_item",
                Key=key,
                UpdateExpression="SET efoLatestAt = :time, unknownToBoth = :unknown",
                ExpressionAttributeValues=_ATTRIBUTES,
            )
            keys.add(str(key["leaseKey"]["S"]))
    return keys


async def check_unknown_attributes(stores: Iterable[DynamoDbLeaseStore], keys: set[str]) -> None:
    """Raise InteropError unless these rows still have these attributes: both libraries have written them since.

    Those of shards that have ended may be deleted by now: each library does so after some minutes.
    """
    store = next(iter(stores))
    rows = (await store._table.call("scan", ConsistentRead=True))["Items"]  # noqa: SLF001 - the rows as they are
    kept = [row for row in rows if (row.get("efoLatestAt"), row.get("unknownToBoth")) == tuple(_ATTRIBUTES.values())]
    left = [row for row in rows if row["leaseKey"]["S"] in keys]
    if not left or len(kept) != len(left):
        raise InteropError(f"only {len(kept)} of {len(left)} lease rows kept their unknown attributes: {rows}")


def _shards(worker: Worker) -> set[str]:
    return {record.shard for record in worker.records}
