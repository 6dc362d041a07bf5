"""The story: KCL reads, efo joins, shards are split and merged, efo crashes, another one comes, KCL leaves."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from efo.exception_groups import collapse_groups
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.model import SHARD_END
from efo.testing import FakeKinesis, FakeSettings
from proofs.interop.clients.examination import WitnessError, build
from proofs.interop.clients.load import data_of, key_of
from proofs.interop.kcl.judgement import EFO, KCL, Moves, Verdict, judge
from proofs.interop.kcl.workers import APPLICATION, KCL_CLIENT, Worker, environment
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local

SHARDS: Final = 4
STREAM: Final = "shared"
_LIFE: Final = 60.0
"""Seconds that a subscription lives, so that each library renews some, the other's consumer being the same."""
_PATIENCE: Final = 300.0
"""Seconds for anything to come about: KCL elects a leader first, and assigns leases at its leisure."""
_CHUNK: Final = 10
_PAUSE: Final = 0.2
_LOOK: Final = 0.5
_POLL: Final = 0.2
_LINGER: Final = 3.0

_MARKS: Final = {":time": {"N": "1700000000.25"}, ":mark": {"S": "kept"}}

Say = Callable[[str], None]
Start = Callable[[str, dict[str, str]], Awaitable[Worker]]


async def play(say: Say, *, efo_makes_table: bool = False) -> Verdict:
    """Play the story. Raises WitnessError, and NotInstalledError where DynamoDB Local is not there.

    `efo_makes_table`: and not KCL, which starts first in any case.
    """
    say("building KCL's worker")
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
                        say("efo has made the table")
                return await Story(fake, environment(STREAM, address, dynamodb), say).play(store)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(serving.__exit__, None, None, None)


class Story:
    """The world of one run, and its acts."""

    def __init__(self, fake: FakeKinesis, environment: dict[str, str], say: Say) -> None:
        self._fake = fake
        self._environment = environment
        self._say = say
        self._moves = Moves()
        self._holders: dict[str, str] = {}
        self._finished: set[str] = set()
        self._workers: list[Worker] = []
        self._running: list[Worker] = []
        self._is_loading = trio.CancelScope()

    async def play(self, store: DynamoDbLeaseStore) -> Verdict:
        """Play all acts, and judge."""
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                try:
                    await self._acts(store, nursery)
                finally:
                    with trio.CancelScope(shield=True):
                        for worker in self._running:
                            await worker.kill()
                nursery.cancel_scope.cancel()
        heard = {worker.name: worker.heard for worker in self._workers}
        return judge(heard, self._fake.records(STREAM), self._moves)

    async def _acts(self, store: DynamoDbLeaseStore, nursery: trio.Nursery) -> None:
        self._say("KCL starts (some two minutes)")
        kcl = await self._start(Worker.start_kcl, "kcl-1", nursery)
        await self._until("KCL subscribes to every shard", self._all_are_read)
        async with self._watching(store, nursery):
            nursery.start_soon(self._load)
            await self._until("KCL has every lease", lambda: self._has_all("kcl-1"))
            await mark(store)
            efo = await self._start(Worker.start_efo, "efo-1", nursery)
            await self._until("efo-1 has its share", lambda: self._share("efo-1") >= SHARDS // 2)
            self._reshard()
            await self._until("the split and the merge are behind us", self._is_resharded)
            await self._end(efo, efo.kill, "killed")
            await self._until("KCL has every lease again", lambda: self._has_all("kcl-1"))
            efo = await self._start(Worker.start_efo, "efo-2", nursery)
            await self._until("efo-2 has a share", lambda: self._share("efo-2") > 0)
            await self._end(kcl, kcl.stop, "stopped")
            await self._until("efo-2 has every lease", lambda: self._has_all("efo-2"))
            self._is_loading.cancel()
            await self._until("everything was heard", self._is_all_heard)
            await trio.sleep(_LINGER)  # so that what comes twice is seen
            await self._end(efo, efo.stop, "stopped")
            await check_marks(store)

    # --- what is done ----------------------------------------------------------------------------------------

    async def _start(self, start: Start, name: str, nursery: trio.Nursery) -> Worker:
        worker = await start(name, self._environment)
        self._workers.append(worker)
        self._running.append(worker)
        nursery.start_soon(worker.listen)
        return worker

    async def _end(self, worker: Worker, end: Callable[[], Awaitable[None]], word: str) -> None:
        self._running.remove(worker)
        await end()
        self._say(f"{worker.name} is {word}, it has said {len(worker.heard)} records")

    async def _load(self) -> None:
        number = 0
        with self._is_loading:
            while True:
                numbers = range(number, number + _CHUNK)
                self._fake.put_many(STREAM, [(key_of(n), data_of(n)) for n in numbers])
                number += _CHUNK
                await trio.sleep(_PAUSE)

    def _reshard(self) -> None:
        first, *_, lower, upper = self._fake.open_shards(STREAM)
        children = (*self._fake.split(STREAM, first), self._fake.merge(STREAM, lower, upper))
        self._say(f"{first} is split; {lower} and {upper} are merged: {', '.join(children)}")

    @asynccontextmanager
    async def _watching(self, store: DynamoDbLeaseStore, nursery: trio.Nursery) -> AsyncIterator[None]:
        async with store:
            scope = trio.CancelScope()
            nursery.start_soon(self._watch, store, scope)
            try:
                yield
            finally:
                scope.cancel()

    async def _watch(self, store: DynamoDbLeaseStore, scope: trio.CancelScope) -> None:
        with scope:
            while True:
                at = time.time_ns() // 1000
                leases = await store.list()
                self._moves.look(leases, at)
                self._holders = {lease.key: lease.holder or "" for lease in leases if not lease.is_finished}
                self._finished = {lease.key for lease in leases if lease.checkpoint == SHARD_END}
                await trio.sleep(_LOOK)

    # --- what is waited for ----------------------------------------------------------------------------------

    async def _until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for something to come about. Raises WitnessError: it did not, or a worker broke off."""
        started = trio.current_time()
        while not condition():
            for worker in self._running:
                worker.check()
            if trio.current_time() > started + _PATIENCE:
                raise WitnessError(f"not within {_PATIENCE:.0f} s: {what}. Leases: {self._holders}")
            await trio.sleep(_POLL)
        moved = f"{self._moves.count(KCL, EFO)} leases moved to efo, {self._moves.count(EFO, KCL)} to KCL"
        self._say(f"{what}, after {trio.current_time() - started:.0f} s; {moved}")

    def _all_are_read(self) -> bool:
        return all(self._fake.subscriptions(STREAM, shard).live for shard in self._fake.open_shards(STREAM))

    def _share(self, name: str) -> int:
        return sum(holder == name for holder in self._holders.values())

    def _has_all(self, name: str) -> bool:
        return self._holders.keys() >= set(self._fake.open_shards(STREAM)) and self._share(name) == len(self._holders)

    def _is_resharded(self) -> bool:
        opened = self._fake.open_shards(STREAM)
        return (
            self._holders.keys() == set(opened)
            and all(self._holders.values())
            and self._all_are_read()
            and {shard for worker in self._workers for shard in _shards(worker)} >= set(opened)
        )

    def _is_all_heard(self) -> bool:
        put = sum(len(records) for records in self._fake.records(STREAM).values())
        return len({(line.shard, line.sequence) for worker in self._workers for line in worker.heard}) >= put


async def mark(store: DynamoDbLeaseStore) -> None:
    """Give each row an attribute that only efo knows, as it writes it, and one that nobody does."""
    for lease in await store.list():
        await store.table.call(
            "update_item",
            Key={"leaseKey": {"S": lease.key}},
            UpdateExpression="SET efoLatestAt = :time, ofNobody = :mark",
            ExpressionAttributeValues=_MARKS,
        )


async def check_marks(store: DynamoDbLeaseStore) -> None:
    """Raise WitnessError unless all rows that were marked have their marks still: both libraries wrote them since."""
    rows = (await store.table.call("scan", ConsistentRead=True))["Items"]
    marked = [row for row in rows if (row.get("efoLatestAt"), row.get("ofNobody")) == tuple(_MARKS.values())]
    if len(marked) != SHARDS:
        raise WitnessError(f"of {SHARDS} rows with unknown attributes {len(marked)} kept them: {rows}")


def _shards(worker: Worker) -> set[str]:
    return {line.shard for line in worker.heard}
