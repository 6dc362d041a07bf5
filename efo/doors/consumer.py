"""What a consumer offers behind each door: what it reads, and acks of what it delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from efo.checks import check_type
from efo.consumer.acks import check_index, record_index
from efo.consumer.consumer import Consumer
from efo.consumer.shard_stream import ShardStream
from efo.consumer.status import ConsumerStatus
from efo.doors.engine import Engine
from efo.doors.merge import Merge
from efo.errors import ConfigurationError
from efo.model import Batch, Checkpoint, Lease, Record, Shard
from efo.protocol.reading import LeaseCounts, ShardReading
from efo.settings import PositionLike


class DoorConsumer:
    """Reads the shards whose leases this worker holds, in a trio thread. Its methods may be called in any thread.

    They do what those of `efo.Consumer` do. The acks are for batches that an iteration over the consumer delivered. An
    ack of a batch whose shard was lost meanwhile, or before which a seek came, has no effect.
    """

    def __init__(self, engine: Engine[Consumer]) -> None:
        self._engine = engine
        self._merge = Merge(engine.post)
        engine.before_close = self._before_close

    @property
    def worker_id(self) -> str:
        """The id of this worker."""
        return self._engine.value.worker_id

    def drain(self) -> None:
        """Stop at the next batch of each shard: finish what was delivered, checkpoint, release.

        A signal handler may call it.
        """
        self._engine.post(self._drain)

    def pause(self, shard_id: str) -> None:
        """Deliver no more batches of a shard until `resume`; its lease is kept. Raises ShardNotReadError."""
        self._engine.side.call(self._engine.value.pause, shard_id)

    def resume(self, shard_id: str) -> None:
        """Continue a paused shard, without loss or repetition. Raises ShardNotReadError."""
        self._engine.side.call(self._engine.value.resume, shard_id)
        self._engine.post(self._merge.on_change)

    def seek(self, shard_id: str, to: Checkpoint | PositionLike) -> None:
        """Continue a shard after a checkpoint or at a position: see `ShardStream.seek`. Raises ShardNotReadError."""
        self._engine.side.call(self._engine.value.seek, shard_id, to)

    def release(self, shard_id: str) -> None:
        """Hand the lease of a shard back: see `efo.Consumer.release`. Raises ShardNotReadError."""
        self._engine.side.call(self._engine.value.release, shard_id)

    def lineage(self) -> tuple[Sequence[Shard], Mapping[str, Lease]]:
        """Return the shards of the last listing, and the leases of all workers, by shard id."""
        return self._engine.side.call(self._engine.value.lineage)

    def status(self) -> ConsumerStatus:
        """Return a snapshot of the consumer."""
        return self._engine.side.call(self._engine.value.status)

    def now(self) -> float:
        """Return the time of the clock of `shards`, in seconds."""
        return self._engine.value.now()

    def shards(self) -> list[ShardReading]:
        """Return what is known of each shard that this worker reads, or stopped reading with no known successor."""
        return self._engine.value.shards()

    def counts(self) -> LeaseCounts | None:
        """Return what the lease table shows; None if it was not read for so long that it is unknown."""
        return self._engine.value.counts()

    def _drain(self) -> None:
        self._engine.value.drain()
        self._merge.drain()

    def _before_close(self, consumer: Consumer) -> None:
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
        if not batch.records:  # here, since an error in the trio thread would end it
            raise ConfigurationError(f"{batch.shard_id}: ack of a batch without records, which was not delivered")
        self._engine.post(self._merge.ack, batch, ack)
