"""What may be asked of the consumer of one stream behind a surface, and what may be done with its shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from efo.adapters.calls import ApplicationSide
from efo.adapters.merge import Merge
from efo.consumer.consumer import Consumer
from efo.consumer.status import ConsumerStatus
from efo.health import IsolatedShard, LeaseCounts, ShardReading
from efo.model import Checkpoint, Lease, Shard
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
