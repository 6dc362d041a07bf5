"""A stream in memory for the tests of an application: no server, no sockets, virtual time, through any surface."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar
from unittest.mock import patch

import trio
from trio.testing import MockClock

from efo import aio, sync
from efo.adapters import engine
from efo.consumer.consumer import Consumer
from efo.consumer.handlers.processor import Checkpointer
from efo.consumer.opening import open_consumer
from efo.consumer.shard_task import ShardReader
from efo.errors import ConfigurationError, EfoError
from efo.events import Event
from efo.exception_groups import collapse_groups
from efo.kinesis.client import KinesisClient
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo.protocol.deaggregation import deaggregate
from efo.testing.fake import FakeKinesis
from efo.testing.faults.script import FaultScript
from efo.testing.settings import FakeSettings
from efo.testing.state.streams import DistributionStrategy

T = TypeVar("T")

STEP = 0.5
"""Seconds between two looks at what is processed."""
PATIENCE = 0.01
"""Seconds without anything to do in efo's thread before its clock jumps: the application may be about to answer."""


def make_batch(
    *data: bytes, key: str | None = "key", stream: str = "orders", shard_id: str = "shardId-000000000000"
) -> Batch:
    """Return a batch of records with these data, to call a handler with.

    Their sequence numbers are 1, 2 and so on.
    """
    records = tuple(Record(str(number), 1_767_225_600.0, one, key) for number, one in enumerate(data, 1))
    return Batch(stream, shard_id, records, records[-1].sequence_number if records else None, 0, 0)


class CheckpointRecorder(Checkpointer):
    """A checkpointer to call the methods of a record processor with. `checkpoints`: what it was called with."""

    def __init__(self) -> None:
        self.checkpoints: list[Record | None] = []

    def checkpoint(self, record: Record | None = None) -> None:
        """Note the record; None: everything passed to the processor so far."""
        self.checkpoints.append(record)


@contextmanager
def virtual_time() -> Iterator[None]:
    """Let `efo.aio` and `efo.sync` run in virtual time: where nothing happens, its clock jumps.

    For tests of an application; those on trio use the fixture `autojump_clock` of pytest-trio. The time of asyncio and
    of `time.sleep` stays real.
    """

    def run(main: Callable[[], Any]) -> Any:
        return trio.run(main, clock=MockClock(autojump_threshold=PATIENCE))

    with patch.object(engine, "run_trio", run):
        yield


class InMemoryStream:
    """A stream with records, and the leases of its readers, for one consumer after the other.

    `open()` is the `stream` of `efo.aio` and `efo.sync`; on trio: `async with stream.open() as kinesis`. Pass `leases`
    too, and `events.append` as observer if the test looks at what was reported. Records, splits and leases outlive a
    consumer or a producer, so the next one continues as after a restart. The methods may be called in any thread.

    `batch_records`: the maximum number of records of a batch. `distribution`: the record distribution strategy; with
    AUTO, records need no partition key. `settings`: other settings of the fake behind it.
    `faults`: its fault script, see `efo.testing.faults`.
    """

    def __init__(
        self,
        name: str = "orders",
        *,
        shards: int = 1,
        batch_records: int = 1000,
        distribution: DistributionStrategy = "USER_PARTITION_KEY",
        settings: FakeSettings | None = None,
    ) -> None:
        self.name = name
        self.leases = MemoryLeaseStore()
        self.events: list[Event] = []
        self.faults = FaultScript()
        given = FakeSettings(consumer_creating=0.0, event_records=batch_records) if settings is None else settings
        self._settings = given
        self._now = given.epoch  # the time of the stream while it is not open, and since when it is
        self._opened_at = 0.0
        self._is_open = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._fake = self._new_fake()
        self._fake.create_stream(name, shards, distribution=distribution)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[KinesisClient]:
        """Run the stream, with everything that was done to it before; return a client of it. One at a time.

        On trio, one client is for any number of consumers and producers.
        """
        if self._is_open:
            raise ConfigurationError(
                f"the in-memory stream {self.name!r} is open already: close its consumer or producer first"
            )
        ended, self._fake = self._fake, self._new_fake()  # subscriptions do not outlive the run of trio
        self._fake.take_over(ended)
        self._now += 1.0
        self._token, self._opened_at, self._is_open = trio.lowlevel.current_trio_token(), trio.current_time(), True
        try:
            async with self._fake:
                yield self._fake.kinesis(self.name)
        finally:
            self._now = self._clock()
            self._is_open = False

    def put(self, key: str | None, *data: bytes) -> None:
        """Put records with this partition key, in order; None: without one, which needs the distribution AUTO."""
        self._call(lambda fake: fake.put_many(self.name, [(key, one) for one in data]))

    def distribute(self, strategy: DistributionStrategy) -> None:
        """Set how records are distributed from now on (AWS: UpdateStreamRecordDistributionStrategy)."""
        self._call(lambda fake: fake.distribute(self.name, strategy))

    def split(self, shard_id: str) -> None:
        """Split a shard in the middle: it ends, and its children follow."""
        self._call(lambda fake: fake.split(self.name, shard_id))

    def merge(self, shard_id: str, adjacent_shard_id: str) -> None:
        """Merge two adjacent shards, the lower one first: they end, and their child follows."""
        self._call(lambda fake: fake.merge(self.name, shard_id, adjacent_shard_id))

    def open_shards(self) -> list[str]:
        """Return the ids of the open shards, in the order of their hash keys."""
        return self._call(lambda fake: list(fake.open_shards(self.name)))

    def lose_lease(self, shard_id: str, to: str = "another-worker") -> None:
        """Let another worker take the lease of a shard by force; its reader is cancelled at its next renewal."""
        self._call(lambda _fake: self.leases.steal(shard_id, to))

    def records(self) -> list[Record]:
        """Return the user records that were put, by `put` and by producers, shard by shard, in the order of each shard.

        KPL aggregates are expanded.
        """

        def records(fake: FakeKinesis) -> list[Record]:
            return [
                user for found in fake.records(self.name).values() for one in found for user in deaggregate(one).records
            ]

        return self._call(records)

    def checkpoints(self) -> dict[str, Checkpoint]:
        """Return the saved checkpoint of each shard that has a lease. They are saved when a consumer is closed."""
        return {lease.key: lease.checkpoint for lease in self.leases.rows()}

    def processed(self) -> list[bytes]:
        """Return the data of all records up to the saved checkpoints, shard by shard: what is not read again."""
        saved = self.checkpoints()
        return [
            record.data
            for shard_id, found in self._call(lambda fake: fake.records(self.name)).items()
            for record in found
            if shard_id in saved and _is_processed(record, saved[shard_id])
        ]

    def unprocessed(self) -> list[bytes]:
        """Return the data of all records after the saved checkpoints, shard by shard: what is still to be read."""
        saved = self.checkpoints()
        return [
            record.data
            for shard_id, found in self._call(lambda fake: fake.records(self.name)).items()
            for record in found
            if shard_id not in saved or not _is_processed(record, saved[shard_id])
        ]

    # --- run until everything is processed --------------------------------------------------------------------------

    async def process_all(self, reader: ShardReader, *, within: float = 3600.0, **options: Any) -> None:
        """Read the stream on trio until all its records are processed and checkpointed, then drain.

        `reader`: an `efo.Handler` or whatever else `consumer.run` takes. `options`: as for `efo.open_consumer`.
        `within`: seconds; with `autojump_clock` they are virtual. Raises what the reader raises, and AssertionError
        if records are unprocessed then.
        """

        async def drain_when_done(consumer: Consumer) -> None:
            with trio.move_on_after(within):
                while self.unprocessed():  # noqa: ASYNC110 - checkpoints are saved now and then
                    await trio.sleep(STEP)
            consumer.drain()

        with collapse_groups():
            async with (
                self.open() as kinesis,
                open_consumer(kinesis, **self._options(options)) as consumer,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(drain_when_done, consumer)
                await consumer.run(reader)
                nursery.cancel_scope.cancel()
        self._check_processed(within)

    async def process_all_on_asyncio(self, reader: Any, *, within: float = 60.0, **options: Any) -> None:
        """Do the same on asyncio, with an `efo.aio.Handler`, in virtual time. `within`: real seconds."""
        with virtual_time():
            async with aio.open_consumer(self.open(), **self._options(options)) as consumer:
                watch = asyncio.create_task(asyncio.to_thread(self._drain_when_done, consumer.drain, within))
                try:
                    await consumer.run(reader)
                finally:
                    watch.cancel()
        self._check_processed(within)

    def process_all_sync(self, reader: Any, *, within: float = 60.0, **options: Any) -> None:
        """Do the same in synchronous code, with an `efo.sync.Handler`, in virtual time. `within`: real seconds."""
        with virtual_time(), sync.open_consumer(self.open(), **self._options(options)) as consumer:
            threading.Thread(target=self._drain_when_done, args=(consumer.drain, within), daemon=True).start()
            consumer.run(reader)
        self._check_processed(within)

    def _drain_when_done(self, drain: Callable[[], None], within: float) -> None:
        """Wait in a thread of its own; end also when the consumer has ended."""
        end = time.monotonic() + within
        with suppress(trio.RunFinishedError, EfoError):
            while self._is_open and self.unprocessed() and time.monotonic() < end:
                time.sleep(PATIENCE)
            drain()

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"application": "test", "leases": self.leases, "observer": self.events.append, **options}

    def _check_processed(self, within: float) -> None:
        if left := self.unprocessed():
            raise AssertionError(f"{len(left)} records are not processed within {within:g} s")

    def _new_fake(self) -> FakeKinesis:
        return FakeKinesis(settings=self._settings, clock=self._clock, faults=self.faults)

    def _clock(self) -> float:
        return self._now + (trio.current_time() - self._opened_at if self._is_open else 0.0)

    def _call(self, function: Callable[[FakeKinesis], T]) -> T:
        if not self._is_open:
            self._now += 1.0  # what is done between two consumers is done at some other time
            return function(self._fake)
        if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token:
            return function(self._fake)
        return trio.from_thread.run_sync(function, self._fake, trio_token=self._token)


def _is_processed(record: Record, saved: Checkpoint) -> bool:
    return saved == Checkpoint.SHARD_END or (not saved.is_sentinel and checkpoint_of(record) <= saved)
