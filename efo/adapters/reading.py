"""What every consumer behind a surface offers, of one stream or of many: its drain, and acks of what it delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from efo.adapters.engine import Engine, Run
from efo.adapters.merge import Merge
from efo.checks import check_type
from efo.consumer.ending import TWO_READERS
from efo.consumer.in_flight import check_index, record_index
from efo.consumer.shard_stream import ShardStream
from efo.consumer.shard_task import ShardReader
from efo.errors import ConfigurationError
from efo.model import Batch, Record


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
        if not batch.records:  # here, since an error in the trio thread would end it
            raise ConfigurationError(f"{batch.shard_id}: ack of a batch without records, which was not delivered")
        self._engine.post(self._merge.ack, batch, ack)
