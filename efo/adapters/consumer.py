"""What every consumer behind a surface offers: its drain, acks, iteration and state; and its record processors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from efo.adapters.calls import SIDE, ApplicationSide, outside
from efo.adapters.engine import Engine, Run
from efo.adapters.merge import Merge
from efo.checks import check_type
from efo.consumer.consumer import Consumer
from efo.consumer.ending import TWO_READERS
from efo.consumer.handlers.processor import Checkpointer, ProcessorReader as TrioProcessorReader
from efo.consumer.in_flight import check_index, record_index
from efo.consumer.shard_stream import ShardStream
from efo.consumer.shard_task import ShardReader
from efo.consumer.status import ConsumerStatus
from efo.errors import ConfigurationError
from efo.health import IsolatedShard, LeaseCounts, ShardReading
from efo.model import Batch, Checkpoint, Lease, Record, Shard
from efo.settings import PositionLike


class StreamConsumer:
    """The consumer of one stream, in a trio thread: to pause, resume, seek and release its shards, and to look at them.

    Its methods may be called in any thread, and do what those of `efo.Consumer` do.
    """

    def __init__(self, side: ApplicationSide, merge: Merge, consumer: Consumer) -> None:
        self._door = side
        self._merge = merge
        self._consumer = consumer

    @property
    def worker_id(self) -> str:
        """The id of this worker."""
        return self._consumer.worker_id

    @property
    def failure(self) -> str | None:
        """What ended the consumer, and where; None unless an error did. It may be read after the end."""
        return self._consumer.failure

    def pause(self, shard_id: str) -> None:
        """Deliver no more batches of a shard until `resume`; its lease is kept. Raises ShardNotReadError."""
        self._door.call(self._consumer.pause, shard_id)

    def resume(self, shard_id: str) -> None:
        """Continue a paused shard, without loss or repetition. Raises ShardNotReadError."""
        self._door.call(self._consumer.resume, shard_id)
        self._door.post(self._merge.on_change)

    def seek(self, shard_id: str, to: Checkpoint | PositionLike) -> None:
        """Continue a shard after a checkpoint or at a position: see `ShardStream.seek`. Raises ShardNotReadError."""
        self._door.call(self._consumer.seek, shard_id, to)

    def release(self, shard_id: str) -> None:
        """Hand the lease of a shard back: see `efo.Consumer.release`. Raises ShardNotReadError."""
        self._door.call(self._consumer.release, shard_id)

    def caught_up(self) -> bool:
        """Return whether all records that had arrived are acked: see `efo.Consumer.caught_up`."""
        return self._door.call_or_closed(self._consumer.caught_up)

    def lineage(self) -> tuple[Sequence[Shard], Mapping[str, Lease]]:
        """Return the shards of the last listing, and the leases of all workers, by shard id."""
        return self._door.call(self._consumer.lineage)

    def status(self) -> ConsumerStatus:
        """Return a snapshot of the consumer; after its end, how it ended."""
        return self._door.call_or_closed(self._consumer.status)

    def now(self) -> float:
        """Return the time of the clock of `shards`, in seconds."""
        self._door.check_process()
        return self._consumer.now()

    def shards(self) -> list[ShardReading]:
        """Return what is known of each shard that this worker reads, or stopped reading with no known successor."""
        self._door.check_process()
        return self._consumer.shards()

    def isolated(self) -> list[IsolatedShard]:
        """Return the shards that failed, and that this worker has not read successfully since."""
        self._door.check_process()
        return self._consumer.isolated()

    def counts(self) -> LeaseCounts | None:
        """Return what the lease table shows; None if it was not read for so long that it is unknown."""
        self._door.check_process()
        return self._consumer.counts()


class RunsReader(Protocol):
    """A consumer on trio, of one stream or of many."""

    async def run(self, reader: ShardReader) -> None:
        """Read shards until `drain`."""

    on_end: Callable[[], object]

    def drain(self) -> None:
        """Stop at the next batch of each shard."""


C = TypeVar("C", bound=RunsReader)


class AdaptedReading(Generic[C]):
    """Reads shards in a trio thread. Its methods may be called in any thread.

    The acks are for batches that an iteration over the consumer delivered. An ack of a batch whose shard was lost
    meanwhile, or before which a seek came, has no effect.
    """

    def __init__(self, engine: Engine[C]) -> None:
        self._engine = engine
        self._claimed: Run[None] | None = None
        self._merge = Merge(engine.post)
        engine.value.on_end = self._merge.drain
        engine.before_close = self._before_close

    def _claim(self, run: Run[None]) -> Run[None]:
        """Take the consumer for one run. Raises ConfigurationError if another one reads it."""
        if self._claimed is not None and not self._claimed.ended.done():
            raise ConfigurationError(TWO_READERS)
        self._claimed = run
        return run

    def drain(self) -> None:
        """Stop at the next batch of each shard: finish what was delivered, checkpoint, release.

        A signal handler may call it.
        """
        self._engine.post(self._engine.value.drain)

    def _before_close(self, consumer: C) -> None:
        consumer.drain()
        self._merge.leave()

    # --- acks of what the iteration delivered -----------------------------------------------------------------

    def ack(self, batch: Batch) -> None:
        """Ack this batch: all its records are done. Batches before it are acked by acks of their own.

        All acks raise ConfigurationError for what is no batch, or no record of the batch.
        """
        self._ack(batch, lambda shard: shard.ack(batch))

    def ack_record(self, batch: Batch, record: Record) -> None:
        """Ack this record of the batch. The checkpoint does not pass earlier records that are not acked."""
        self.ack_records(batch, [record_index(batch, record)])

    def ack_records(self, batch: Batch, indexes: Iterable[int]) -> None:
        """Ack these records of the batch, by their indexes. Earlier records are acked by acks of their own."""
        indexes = [*indexes]
        for index in indexes:
            check_index(batch, index)
        self._ack(batch, lambda shard: shard.ack_records(batch, indexes))

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        """Ack everything of its shard up to and including this batch, or its record of this index."""
        if index is not None:
            check_index(batch, index)
        self._ack(batch, lambda shard: shard.ack_through(batch, index))

    def _ack(self, batch: Batch, ack: Callable[[ShardStream], None]) -> None:
        check_type("batch", batch, Batch, "the Batch that the consumer delivered")
        if not len(batch):  # here, since an error in the trio thread would end it
            raise ConfigurationError(f"{batch.shard_id}: ack of a batch without records, which was not delivered")
        self._engine.post(self._merge.ack, batch, ack)


class ProcessorReader(TrioProcessorReader):
    """Reads shards by record processors, as `efo.ProcessorReader`, with methods that run on the application's side."""

    surface = "efo.aio"
    takes_kcl_classes = False  # they block, and run in threads of trio's

    def bind(self, method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Return an async function for trio that calls this method of a processor on the application's side."""
        return outside(method)

    def checkpointer(self, shard: ShardStream) -> Checkpointer:
        """Return the checkpointer of a shard, for any thread."""
        return Checkpointer(shard, SIDE.get().post)

    async def make(self) -> Any:
        """Make a processor on the application's side."""
        return await outside(self._factory)()
