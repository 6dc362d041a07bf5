"""One shard as its reader sees it: batches of user records to iterate over, acks, pause and seek."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Final, Self

import trio

from efo.consumer.deaggregation import Deaggregator
from efo.errors import ConfigurationError, ShardGoneError, ShardNotReadError
from efo.events import (
    BatchDelivered,
    EndReason,
    Observer,
    RecordsProcessed,
    ShardGone,
    ShardPaused,
    ShardRepositioned,
    ShardResumed,
)
from efo.kinesis.shard_subscription import ShardEnd, ShardSubscription
from efo.model import TRIM_HORIZON, Batch, Checkpoint, ChildShard, Position, PositionType, Record
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.progress import Progress

_DATA: Final = attrgetter("data")


@dataclass(frozen=True, slots=True)
class _Delivered:
    """What is told about a batch once it is done. Arrival times in seconds since the epoch."""

    records: int
    at: float
    oldest: float
    newest: float


class ShardStream:
    """The batches of one shard, in order, from its checkpoint on.

    Iterate over it; the iteration ends at the shard's end, or when the consumer drains. Every batch is to be acked
    once its records are done: the checkpoint follows the acks, never the deliveries (rule R3). Batches without
    records are not shown; they move the checkpoint all the same.

    `stream`: the stream's name. `shard_id`: the shard. `checkpoint`: where the lease, or a seek, said to go on.
    `bytes_received`: how much data of Kinesis records has come.
    """

    def __init__(
        self,
        stream: str,
        shard_id: str,
        checkpoint: Checkpoint,
        *,
        subscribe: Callable[[Position], ShardSubscription],
        initial: Position,
        pin: Callable[[Position], Position],
        deaggregator: Deaggregator,
        clock: Callable[[], float],
        observer: Observer,
    ) -> None:
        self.stream = stream
        self.shard_id = shard_id
        self.checkpoint = checkpoint
        self.children: tuple[ChildShard, ...] | None = None
        self.progress = Progress(None if checkpoint.is_sentinel else checkpoint)
        self.millis_behind_latest: int | None = None
        self.bytes_received = 0
        self._position = start_position(checkpoint, initial)
        self._subscribe = subscribe
        self._pin = pin
        self._deaggregator = deaggregator
        self._clock = clock
        self._observer = observer
        self._subscription: ShardSubscription | None = None
        self._number = 0
        self._first_number = 0  # of the batches since the last seek
        self._unacked: dict[int, _Delivered] = {}
        self._stopping = False
        self._has_ended = False
        self._is_at_end = False
        self._resumed: trio.Event | None = None
        self._waiting = trio.CancelScope()
        self._idle_since = trio.current_time()  # infinity while the reader waits for a batch
        self._interrupted = trio.Event()
        self._batch: Batch | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the shard was read to its end (not merely stopped)."""
        return self.children is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the iteration ends at the next batch because the consumer drains."""
        return self._stopping

    @property
    def is_paused(self) -> bool:
        """Whether `pause` was called, and `resume` not yet."""
        return self._resumed is not None

    # --- where to read, and whether ------------------------------------------------------------------------

    def seek(self, to: Checkpoint | Position) -> None:
        """Go on after this checkpoint, or at this position; LATEST is the moment of the call.

        At any time before the iteration has ended. Batches of before the seek count no longer: acks of them change
        nothing. A seek to a record's checkpoint is saved like progress; a position's is not known as a checkpoint
        before the first ack after it, so a crash until then forgets the seek. Raises ShardNotReadError, and
        ConfigurationError for a checkpoint that names no place.
        """
        if isinstance(to, Checkpoint) and to.is_sentinel and to != TRIM_HORIZON:
            raise ConfigurationError(f"seek to the checkpoint {to}: it names no place; a Position does")
        if self._has_ended:
            raise ShardNotReadError(f"{self.shard_id}: its iteration has ended, so there is nothing to seek in")
        self._unsubscribe("seek")
        if isinstance(to, Position):
            self._position = self._pin(to)
            self.checkpoint = _known_before(self._position)
            self.progress.restart()
        else:
            self._position = start_position(to, self._position)
            self.checkpoint = to
            self.progress.restart(None if to.is_sentinel else to)
        self._first_number = self._number
        self._unacked.clear()
        self._batch, self._is_at_end = None, False
        self._observer(ShardRepositioned(self.shard_id, to))
        self._interrupt()

    def pause(self) -> None:
        """Hand out no more batches until `resume`. What was handed out is still to be handled and acked."""
        if self._resumed is None:
            self._resumed = trio.Event()
            self._observer(ShardPaused(self.shard_id))
            self._waiting.cancel()

    def resume(self) -> None:
        """Go on after `pause`, without loss or repetition."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None
            self._observer(ShardResumed(self.shard_id))

    def stop(self) -> None:
        """ShardEnd the iteration; a batch that is being handled is not disturbed."""
        self._stopping = True
        self._interrupt()

    def is_wanted(self, batch: Batch) -> bool:
        """Tell whether this batch is still to be handled: no seek came since, and the consumer does not drain."""
        return not self._stopping and batch.number >= self._first_number

    async def wait(self, batch: Batch, seconds: float) -> bool:
        """Wait so long, or until the batch is no longer wanted; return whether it is. For pauses between retries."""
        with trio.move_on_after(seconds):
            while self.is_wanted(batch):
                await self._interrupted.wait()
        return self.is_wanted(batch)

    # --- acks ----------------------------------------------------------------------------------------------

    def ack(self, batch: Batch) -> None:
        """Say that everything up to and including this batch is done."""
        self._done(self.progress.ack_through(batch.number))

    def ack_record(self, batch: Batch, record: Record) -> None:
        """Say that this record of the batch is done, whatever is before it: the checkpoint passes none that is not."""
        self._done(self.progress.ack_record(batch.number, record))

    def ack_through(self, batch: Batch, index: int) -> None:
        """Say that everything up to and including the record of this index in the batch is done."""
        self._done(self.progress.ack_through(batch.number, index))

    def ack_records(self, batch: Batch, indexes: Iterable[int]) -> None:
        """Say that these records of the batch, by their indexes, are done, whatever is before them."""
        self._done(self.progress.ack_records(batch.number, indexes))

    def _done(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if delivered := self._unacked.pop(number, None):
                now, wall = trio.current_time(), self._clock()
                ages = (_age(wall, delivered.oldest), _age(wall, delivered.newest))
                self._observer(RecordsProcessed(self.shard_id, delivered.records, now - delivered.at, *ages))

    # --- the iteration -------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        while self.children is None and not self._stopping:
            with trio.CancelScope() as self._waiting:
                if self._resumed is not None:
                    await self._resumed.wait()
                elif self._batch is None:
                    await self._receive()
            if self._batch is not None and self._resumed is None:
                batch, self._batch = self._batch, None
                self._observer(BatchDelivered(self.shard_id, len(batch.records)))
                return batch
        self._has_ended = True
        raise StopAsyncIteration

    async def unsubscribe_when_idle(self, after: float) -> None:
        """Give the subscription up whenever the reader wanted nothing of it for `after` seconds (rule R9).

        It is subscribed to again when the reader wants a batch, from where it was. For a task of its own.
        """
        while True:
            now, due = trio.current_time(), self._idle_since + after
            if due <= now and not self._is_at_end:
                self._unsubscribe("idle")
            await trio.sleep_until(due if now < due < inf else now + after)

    async def _receive(self) -> None:
        if self._subscription is None:
            self._subscription = self._subscribe(self._position)
        subscription = self._subscription
        self._idle_since = inf
        try:
            event = await subscription.receive()
        except ShardGoneError:
            # Nothing of it can be read any more, and it tells no children: they are found by ListShards.
            self._observer(ShardGone(self.shard_id, self.progress.checkpoint or self.checkpoint))
            event = ShardEnd(())
        finally:
            self._idle_since = trio.current_time()
        if subscription is self._subscription:  # a seek may come just when an event is on its way to us
            self._take(event)

    def _take(self, event: SubscribeToShardEvent | ShardEnd) -> None:
        if isinstance(event, ShardEnd):
            self.children = event.children
            return
        self._is_at_end = event.continuation_sequence_number is None
        self.millis_behind_latest = event.millis_behind_latest
        self.bytes_received += sum(map(len, map(_DATA, event.records)))
        records = self._deaggregator.deaggregate(event.records, self.checkpoint)
        continuation = event.continuation_sequence_number
        batch = Batch(self.shard_id, records, continuation, event.millis_behind_latest, self._number)
        self._number += 1
        self.progress.delivered(batch)
        if not batch.records:
            self.progress.ack(batch.number)
            return
        arrivals = (batch.records[0], batch.records[-1])
        self._unacked[batch.number] = _Delivered(
            len(batch.records), trio.current_time(), *(r.approximate_arrival_timestamp for r in arrivals)
        )
        self._batch = batch

    def _unsubscribe(self, reason: EndReason) -> None:
        if self._subscription is not None:
            self._position = self._subscription.position
            self._subscription.close(reason)
            self._subscription = None

    def _interrupt(self) -> None:
        self._waiting.cancel()
        self._interrupted.set()
        self._interrupted = trio.Event()


def _age(now: float, arrived: float) -> float | None:
    """Return how long ago a record arrived; None where nobody said when."""
    return max(0.0, now - arrived) if arrived else None


def start_position(checkpoint: Checkpoint, initial: Position) -> Position:
    """Return where a subscription starts that goes on after this checkpoint (rule R5).

    AT the checkpoint's record and not after it, because of the rest of its aggregate; the records up to the
    checkpoint are cut off. Sentinels other than TRIM_HORIZON mean `initial`.
    """
    match checkpoint.sequence_number:
        case "TRIM_HORIZON":
            return Position.trim_horizon()
        case "LATEST" | "AT_TIMESTAMP":
            return initial
        case number:
            return Position.at(number)


def _known_before(position: Position) -> Checkpoint:
    """Return the checkpoint that names this position, as far as one can."""
    match position.type:
        case PositionType.AFTER_SEQUENCE_NUMBER:
            return Checkpoint(position.sequence_number or "")
        case PositionType.AT_SEQUENCE_NUMBER:
            return TRIM_HORIZON
        case sentinel:
            return Checkpoint(sentinel.value)
