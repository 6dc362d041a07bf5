"""One shard as its reader sees it: batches of user records to iterate over, acks, pause and seek."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import TYPE_CHECKING, Self

import trio

from efo.consumer.advice import slow_batch
from efo.consumer.age_limits import AgeLimits
from efo.consumer.deaggregator import Deaggregator, EventPart, checkpoint_before, start_position
from efo.consumer.expired_records import ShardUnread
from efo.consumer.in_flight import InFlight, check_delivered, check_index, record_index
from efo.errors import ConfigurationError, ServiceError, ShardGoneError, ShardNotReadError
from efo.events import (
    AdviceGiven,
    BatchDelivered,
    EndReason,
    Observer,
    ShardGone,
    ShardPaused,
    ShardRepositioned,
    ShardResumed,
)
from efo.health import Overdue, ShardReading, ShardState
from efo.identity import check_refusal
from efo.kinesis.shard_source import ShardEnd, ShardSource
from efo.model import Batch, Checkpoint, ChildShard, Position, Record
from efo.protocol.lazy_batch import batch_of, records_of
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.native import STEP
from efo.protocol.packed import packed
from efo.protocol.progress import Progress
from efo.protocol.until import ShardLimit
from efo.settings import LATEST, PositionLike, parse_position
from efo.telemetry.tracing import NO_SPAN

if TYPE_CHECKING:
    from efo.telemetry.spans import ShardSpans


def _nothing_overdue() -> Overdue | None:
    return None


class ShardStream:
    """The batches of one shard, in order, after its checkpoint. Made by `Consumer.run`, one for each shard.

    Iterate over it: `async for batch in shard`. The iteration ends at the end of the shard, or when the consumer
    drains. Ack each batch after its records are processed: the checkpoint follows the acks, not the deliveries (rule
    R3). Batches without records are not delivered; they move the checkpoint all the same.

    `stream`: the stream's name. `shard_id`: the shard's id. `checkpoint`: the checkpoint of the lease, or of the last
    seek, after which it reads. `bytes_received`: the size of the data of all Kinesis records received. `acks`: grows
    with each ack and each seek. `overdue_after`: acks are reported as overdue after so many seconds. `overdue`: returns
    what its reader waits for before it can ack, in any thread; the reader sets it. `is_lost`: whether its lease was
    lost: its reader is being cancelled. `unread`: since when records of it are unread, which may expire.
    `observer`: takes the diagnostic events of its consumer. `limit`: where the reading ends. `on_complete`: called
    then. `ages`: what is too old to be delivered; None: nothing is.
    """

    def __init__(
        self,
        stream: str,
        shard_id: str,
        checkpoint: Checkpoint,
        *,
        subscribe: Callable[[Position], ShardSource],
        initial: Position,
        unread: ShardUnread,
        pin: Callable[[Position], Position],
        save: Callable[[], Awaitable[None]],
        deaggregator: Deaggregator,
        clock: Callable[[], float],
        observer: Observer,
        spans: ShardSpans | None = None,
        limit: ShardLimit | None = None,
        on_complete: Callable[[], object] = lambda: None,
        service_time: Callable[[], float] | None = None,
        ages: AgeLimits | None = None,
    ) -> None:
        self.stream = stream
        self.shard_id = shard_id
        self.checkpoint: Checkpoint = checkpoint
        self.children: tuple[ChildShard, ...] | None = None
        self._progress = Progress(None if checkpoint.is_sentinel else checkpoint)
        self.millis_behind_latest: int | None = None
        self.bytes_received: int = 0
        self.acks: int = 0
        self.overdue: Callable[[], Overdue | None] = _nothing_overdue
        self.is_lost: bool = False
        self.is_left: bool = False
        self._position = start_position(checkpoint, initial)
        self.unread = unread
        self._subscribe = subscribe
        self._pin = pin
        self._save = save
        self._deaggregator = deaggregator
        self.observer = observer
        self._spans = spans
        self._subscription: ShardSource | None = None
        self._now = trio.lowlevel.current_clock().current_time  # a third of the calls of trio.current_time
        self._known_since = self._saved_at = self._idle_since = self._now()  # _idle_since: infinity while it waits
        self._subscribed_at: float | None = None
        self._last_event_at: float | None = None
        self._unsaved_since: float | None = None
        self._number = 0
        self._first_number = 0  # of the batches since the last seek
        self._in_flight = InFlight(shard_id, clock, observer)
        self._limit = limit
        self._on_complete = on_complete
        self._service_time = service_time or clock
        self._draining = False
        self._has_ended = False
        self._is_at_end = False
        self._is_paused = False
        self._wanted_since: float | None = None  # None unless it waits
        self._interrupted = trio.Event()
        self._batch: Batch | None = None
        self._event: SubscribeToShardEvent | None = None  # its user records are not all delivered
        self._event_bytes = 0  # of its data, until they are counted with a batch
        self._parts: Iterator[EventPart] = iter(())
        self._part: EventPart | None = None  # its old records are being stored as dead letters
        self.ages = ages

    @property
    def is_finished(self) -> bool:
        """Whether the shard was read to its end, and not merely drained."""
        return self.children is not None

    @property
    def has_ended(self) -> bool:
        """Whether the iteration has ended."""
        return self._has_ended

    @property
    def is_at_tip(self) -> bool:
        """Whether all that had arrived by its last event was delivered."""
        return self.millis_behind_latest == 0 and self._last_event_at is not None and not self.has_pending

    @property
    def is_complete(self) -> bool:
        """Whether all was delivered up to where the consumer is to end by itself."""
        is_reached = self._limit is not None and self._limit.is_reached
        return is_reached and self._event is None and self._batch is None

    @property
    def is_draining(self) -> bool:
        """Whether the iteration ends before the next batch because the consumer drains."""
        return self._draining

    @property
    def is_paused(self) -> bool:
        """Whether the shard is paused."""
        return self._is_paused

    @property
    def state(self) -> ShardState:
        """The state of the subscription."""
        return "unsubscribed" if self._subscription is None else self._subscription.state

    @property
    def has_pending(self) -> bool:
        """Whether more of the shard has arrived than was delivered: its reader, not Kinesis, is what is slow."""
        return self._event is not None or (self._subscription is not None and self._subscription.has_pending)

    def reading(self) -> ShardReading:
        """Return what is known of the reading of this shard. May be called from any thread."""
        subscription, last_event_at = self._subscription, self._last_event_at
        oldest = self._in_flight.oldest
        return ShardReading(
            self.shard_id,
            self.acked or self.checkpoint,
            "unsubscribed" if subscription is None else subscription.state,
            self._known_since,
            self._saved_at,
            None if subscription is None else self._subscribed_at,
            last_event_at,
            None if last_event_at is None else self.millis_behind_latest,
            self._is_paused,
            subscription is not None and subscription.has_pending,
            self._unsaved_since,
            self._wanted_since,
            None if subscription is None else subscription.read_mode,
            None if oldest is None else oldest.at,
            0.0 if oldest is None else oldest.behind,
            self.overdue(),
            None if subscription is None else subscription.pending_since,
        )

    def saved(self, acks: int) -> None:
        """Note that a checkpoint was saved now. `acks`: the value of `acks` when it was taken."""
        self._saved_at = self._now()
        has_more = self._in_flight or self.acks != acks
        self._unsaved_since = self._saved_at if has_more else None

    # --- where to read, and whether ------------------------------------------------------------------------

    def seek(self, to: Checkpoint | PositionLike) -> None:
        """Continue after this checkpoint or at this position. LATEST is the time of the call.

        Possible until the iteration has ended. Acks of batches that were delivered before the seek have no effect. A
        seek to a record's checkpoint is saved as progress. A position is not a checkpoint, so it is forgotten if the
        worker crashes before the first ack after the seek. Raises ShardNotReadError, and ConfigurationError for a
        checkpoint that names no place.
        """
        if isinstance(to, Checkpoint):
            if to.is_sentinel and to != Checkpoint.TRIM_HORIZON:
                raise ConfigurationError(f"seek to the checkpoint {to}: it names no place; use a Position")
        else:
            to = parse_position(to, "seek position")
        if self._has_ended:
            raise ShardNotReadError(f"{self.shard_id}: its iteration has ended, so that a seek has no effect")
        self._unsubscribe("seek")
        if isinstance(to, Position):
            self._position = self._pin(to)
            self.checkpoint = checkpoint_before(self._position)
            self._progress.restart()
            self.unread.restart(self._position.timestamp)
        else:
            # A sink may be ahead of the lease: what may be unread since then includes what is unread now.
            since = self.unread.since if self.checkpoint <= to else None
            self.unread.restart(since, None if to.is_sentinel else to.sequence_number)
            self._position = start_position(to, self._position)
            self.checkpoint = to
            self._progress.restart(None if to.is_sentinel else to)
        self._first_number = self._number
        self.acks += 1
        self._in_flight.forget()
        self._batch, self._event, self._part, self._is_at_end = None, None, None, False
        if self._limit is not None:
            self._limit.restart()
        # What was known before does not hold at the new place.
        self._known_since, self._last_event_at, self._unsaved_since = self._now(), None, None
        self.observer(ShardRepositioned(self.shard_id, to))
        self._interrupt()

    def pause(self) -> None:
        """Deliver no more batches until `resume`. Batches already delivered are still to be processed and acked."""
        if not self._is_paused:
            self._is_paused = True
            self.observer(ShardPaused(self.shard_id))
            self._interrupt()

    def resume(self) -> None:
        """Continue after `pause`, without loss or repetition."""
        if self._is_paused:
            self._is_paused = False
            self.observer(ShardResumed(self.shard_id))
            self._interrupt()

    async def resumed(self) -> None:
        """Wait while the shard is paused, unless the consumer drains."""
        while self._is_paused and not self._draining:
            await self._interrupted.wait()

    def drain(self) -> None:
        """End the iteration before the next batch. The batch that is being processed is not disturbed."""
        self._draining = True
        self._interrupt()

    def is_wanted(self, batch: Batch) -> bool:
        """Return whether this batch is still to be processed: no seek came since, and the consumer does not drain."""
        return not self._draining and self.is_current(batch)

    def is_current(self, batch: Batch) -> bool:
        """Return whether no seek came since this batch was delivered: then its acks count, also in a drain."""
        return batch.number >= self._first_number

    async def wait(self, batch: Batch, seconds: float) -> bool:
        """Wait, or until the batch is no longer wanted; return whether it is. For pauses between retries."""
        with trio.move_on_after(seconds):
            while self.is_wanted(batch):
                await self._interrupted.wait()
        return self.is_wanted(batch)

    @property
    def acked(self) -> Checkpoint | None:
        """The checkpoint up to which everything is acked; None if nothing was acked and no record was read before."""
        return self._progress.checkpoint

    @property
    def unread_since(self) -> float | None:
        """Since when records may be unread, as of `acked` (`Lease.unread_since`); None if unknown."""
        if self._in_flight:
            return self._in_flight.oldest_arrival
        return self.unread.since if self._event is None else None

    @property
    def overdue_after(self) -> float:
        """Acks are reported as overdue after so many seconds."""
        return self._in_flight.overdue_after

    @overdue_after.setter
    def overdue_after(self, seconds: float) -> None:
        self._in_flight.overdue_after = seconds

    def watch(self) -> None:
        """Report a batch that has been in flight for very long, unless its reader says itself what it waits for.

        efo calls it, every few seconds.
        """
        if self.overdue() is None:
            self._in_flight.watch()

    @property
    def has_unacked(self) -> bool:
        """Whether delivered batches are not acked yet."""
        return not self._progress.is_idle

    @property
    def unacked(self) -> int:
        """How many records are delivered and not acked."""
        return self._progress.unacked

    def slow_batch(self) -> AdviceGiven | None:
        """Return what is reported of a batch that has been in flight for very long; None if none has."""
        seconds = self._in_flight.slow_for if self.overdue() is None else None
        return None if seconds is None else slow_batch(self.shard_id, self._in_flight.records, seconds)

    def has_unacked_besides(self, batch: Batch) -> bool:
        """Return whether delivered batches other than this one are not acked yet."""
        return self._in_flight.has_besides(batch)

    def has_delivered(self, batch: Batch) -> bool:
        """Return whether this is a batch of this shard's iteration, acked or not. May be called from any thread."""
        return batch.shard_id == self.shard_id and batch.stream == self.stream and 0 <= batch.number < self._number

    def is_in_flight(self, batch: Batch) -> bool:
        """Return whether this is a batch that was delivered and is not acked.

        False for one of an earlier reading of the shard, even if it had the same number.
        """
        return self._in_flight.has(batch)

    # --- spans -----------------------------------------------------------------------------------------------

    @property
    def is_traced(self) -> bool:
        """Whether the shard has OpenTelemetry spans."""
        return self._spans is not None

    def process_span(self, batch: Batch) -> AbstractContextManager[object]:
        """Return a context in which the span of the processing of this batch is current; it ends with the context.

        For readers of their own, since an iteration does not know when a batch is processed: `with
        shard.process_span(batch): ...`. `Handler` does it. Without a tracer provider, and
        beyond `OtelTracing.batch_spans_per_second`, it does nothing.
        """
        return NO_SPAN if self._spans is None else self._spans.of_batch(records_of(batch)) or NO_SPAN

    # --- acks ----------------------------------------------------------------------------------------------

    def ack(self, batch: Batch) -> None:
        """Ack this batch: all its records are done. Batches before it are acked by acks of their own.

        All acks raise ConfigurationError for a batch or record that this shard did not deliver.
        """
        check_delivered(self, batch)
        self._acked(self._progress.ack(batch))

    def ack_record(self, batch: Batch, record: Record) -> None:
        """Ack this record of the batch. The checkpoint does not pass earlier records that are not acked."""
        check_delivered(self, batch)
        self._acked(self._progress.ack_records(batch, [record_index(batch, record)]))

    def ack_records(self, batch: Batch, indexes: Iterable[int]) -> None:
        """Ack these records of the batch, by their indexes. Earlier records are acked by acks of their own."""
        check_delivered(self, batch)
        indexes = [*indexes]
        for index in indexes:
            check_index(batch, index)
        self._acked(self._progress.ack_records(batch, indexes))

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        """Ack everything up to and including this batch, or up to and including its record of this index."""
        check_delivered(self, batch)
        if index is not None:
            check_index(batch, index)
        self._acked(self._progress.ack_through(batch, index))

    def ack_to(self, checkpoint: Checkpoint, *, inclusive: bool = True) -> None:
        """Ack all that was delivered up to and including this checkpoint, as KCL's checkpointer does.

        Not `inclusive`: only the batches that end before it. Raises ConfigurationError for a sentinel.
        """
        if checkpoint.is_sentinel:
            raise ConfigurationError(
                f"ack to the checkpoint {checkpoint}: it is not that of a record, which has a sequence number"
            )
        self._acked(self._progress.ack_to(checkpoint, inclusive=inclusive))

    async def save(self) -> None:
        """Save now what is acked, and return when it is saved. Without it, `checkpoint_seconds` says when.

        Raises LeaseLostError, and LeaseStoreUnavailableError: it is saved later then.
        """
        await self._save()

    def _acked(self, numbers: Iterable[int]) -> None:
        self.acks += 1
        self._in_flight.acked(numbers)

    # --- the iteration -------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        if self.is_left:
            raise ConfigurationError(
                f"{self.shard_id}: its reader has ended, so this worker reads it no more: iterate within the reader"
            )
        while self.children is None and not self._draining and not self.is_complete:
            if self._is_paused:
                await self.resumed()
            elif self._batch is None:
                await self._receive()
            if self._batch is not None and not self._is_paused:
                batch, self._batch = self._batch, None
                if self._unsaved_since is None:
                    self._unsaved_since = self._now()
                self.observer(BatchDelivered(self.shard_id, len(batch)))
                return batch
        self._has_ended = True
        if self.is_complete:
            self._on_complete()
        raise StopAsyncIteration

    async def unsubscribe_when_idle(self, after: float) -> None:
        """Close the subscription whenever the reader has taken nothing for `after` seconds (rule R9).

        It is opened again, at the same place, when the reader wants a batch. Runs until cancelled.
        """
        while True:
            now, due = self._now(), self._idle_since + after
            if due <= now and not self._is_at_end:
                self._unsubscribe("idle")
            await trio.sleep_until(due if now < due < inf else now + after)

    async def _receive(self) -> None:
        if self._event is not None:
            await trio.lowlevel.checkpoint()  # a large event has many parts: other tasks run between them
            if self._event is not None:  # a seek may come meanwhile
                await self._take_part(self._event, self._now())
            return
        if self._subscription is None:
            self._subscription, self._subscribed_at = self._subscribe(self._position), self._now()
        subscription = self._subscription
        self._idle_since, self._wanted_since = inf, self._now()
        try:
            event: SubscribeToShardEvent | ShardEnd | None = await subscription.receive()
        except ShardGoneError:
            # Nothing of it can be read any more, and it announces no children: a shard sync finds them.
            self.observer(ShardGone(self.shard_id, self._progress.checkpoint or self.checkpoint))
            self.unread.gone()
            event = ShardEnd(())
        except ServiceError as error:
            check_refusal(error, self.stream, self.shard_id, subscription.position)
            raise
        finally:
            self._idle_since, self._wanted_since = self._now(), None
        # None after an interrupt. A seek may come while the event is on its way.
        if event is not None and subscription is self._subscription:
            await self._take(event, self._idle_since)

    async def _take(self, event: SubscribeToShardEvent | ShardEnd, now: float) -> None:
        if isinstance(event, ShardEnd):
            self.children = event.children
            return
        if self.ages is not None and self.ages.skips(event):
            self._skip_backlog()
            return
        self._is_at_end = event.continuation_sequence_number is None
        if self._limit is not None:
            event = self._limit.take(event, self._service_time())
        self.millis_behind_latest = event.millis_behind_latest
        self._last_event_at = now
        self.unread.received(event.records, event.millis_behind_latest)
        data: Sequence[bytes] = ()
        if (columns := packed(event.records)) is not None:  # none of them is an aggregate
            self._event_bytes = len(columns.columns.data)
        elif STEP is not None and (size := STEP.plain_size(event.records)) is not None:
            self._event_bytes = size
        else:
            data = [record.data for record in event.records]
            self._event_bytes = sum(map(len, data))
        self.bytes_received += self._event_bytes
        self._event, self._parts = event, self._deaggregator.deaggregate(event.records, self.checkpoint, data)
        await self._take_part(event, now)

    async def _take_part(self, event: SubscribeToShardEvent, now: float) -> None:
        """Take the next part of an event. Only the last one has the continuation: then all are done (rule R3)."""
        records, is_last = self._part or next(self._parts)
        if self.ages is not None and records:
            self._part = EventPart(records, is_last)  # the wait may be cancelled
            young = await self.ages.sort(records, lambda old: self._next_batch(old, event, None))
            if young is None or self._event is not event:  # a drain, or a seek
                return
            records, self._part = young, None
        if is_last:
            self._event, self._parts = None, iter(())
        elif not records:
            return
        continuation = event.continuation_sequence_number if is_last else None
        batch = self._next_batch(records, event, continuation)
        self._progress.delivered(batch)
        if not records:
            self._progress.ack(batch)
            return
        self._in_flight.delivered(batch, now, self._event_bytes, event.millis_behind_latest / 1000)
        self._event_bytes = 0
        self._batch = batch

    def _next_batch(self, records: tuple[Record, ...], event: SubscribeToShardEvent, continuation: str | None) -> Batch:
        self._number += 1
        behind, number = event.millis_behind_latest, self._number - 1
        return batch_of(Batch(self.stream, self.shard_id, records, continuation, behind, number))

    def _skip_backlog(self) -> None:
        """Go on at the tip. Unlike a seek, it forgets nothing that was delivered: its acks count (rule R3)."""
        self._unsubscribe("seek")
        self._position = self._pin(LATEST)
        self.unread.restart(self._position.timestamp)
        self._known_since, self._last_event_at = self._now(), None

    def _unsubscribe(self, reason: EndReason) -> None:
        if self._subscription is not None:
            self._position = self._subscription.position
            self._subscription.close(reason)
            self._subscription = None

    def _interrupt(self) -> None:
        """Let everything that waits look again what it waits for."""
        if self._subscription is not None:
            self._subscription.interrupt()
        self._interrupted.set()
        self._interrupted = trio.Event()
