"""Subscriptions: when a SubscribeToShard call is accepted, the events that it sends, and when it ends.

The rules are AWS's (SubscribeToShard, SubscribeToShardEvent). One rule is not documented by AWS: subscriptions of a
deregistered consumer end with ResourceNotFoundException.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import trio

from efo.model import ChildShard, Position
from efo.protocol import eventstream
from efo.testing.errors import FakeError, in_use, limit_exceeded, not_found
from efo.testing.state.consumers import ConsumerState
from efo.testing.state.core import Core
from efo.testing.state.positions import starting_index
from efo.testing.state.shards import ShardState, StoredRecord
from efo.testing.state.streams import StreamState

JSON: Final = "application/x-amz-json-1.1"
EVENT_HEADERS: Final = {
    ":event-type": "SubscribeToShardEvent",
    ":content-type": JSON,
    ":message-type": "event",
}
INITIAL_RESPONSE: Final = eventstream.encode(
    {":event-type": "initial-response", ":content-type": JSON, ":message-type": "event"}, b"{}"
)

_encode = msgspec.json.Encoder().encode


class FakeEvent(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """One event (AWS: SubscribeToShardEvent). A missing continuation and an empty list of children are omitted."""

    records: list[StoredRecord]
    millis_behind_latest: int
    continuation_sequence_number: str | None = None
    child_shards: list[ChildShard] = []


@dataclass(slots=True)
class SubscriptionCounts:
    """Subscription counters of one shard.

    `made`: accepted subscribes. `refused`: rejected ones. `taken_over`: subscriptions that a later one ended.
    `live`: current subscriptions.
    """

    made: int = 0
    refused: int = 0
    taken_over: int = 0
    live: int = 0


@dataclass(slots=True)
class Slot:
    """The state of one consumer on one shard. Times are on trio's clock.

    `called_at`: the last call. `succeeded_at`: the last accepted call. `paced_until`: when the next records may be
    sent. `active`: the live subscription.
    """

    called_at: float = float("-inf")
    succeeded_at: float = float("-inf")
    paced_until: float = float("-inf")
    active: FakeSubscription | None = None


class Subscriptions:
    """Accepts or rejects subscribes, and counts them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._slots: dict[tuple[str, str], Slot] = {}
        self._counts: dict[tuple[str, str], SubscriptionCounts] = {}

    def counts(self, stream: str, shard_id: str) -> SubscriptionCounts:
        """Return the counters of one shard. The object is updated while the fake runs."""
        return self._counts.setdefault((stream, shard_id), SubscriptionCounts())

    def open(self, consumer_arn: str, shard_id: str, position: Position) -> FakeSubscription:
        """Start a subscription. It takes over from an older one.

        Raises FakeError: ResourceNotFoundException (consumer or shard), LimitExceededException (a second call within
        one second), ResourceInUseException (the consumer is not ACTIVE, or the last success was less than 5 seconds
        ago), InvalidArgumentException (the position).
        """
        stream, consumer = self._core.consumer(consumer_arn)
        shard = stream.shard(shard_id)
        counts = self.counts(stream.name, shard.id)
        slot = self._slots.setdefault((consumer_arn, shard.id), Slot())
        try:
            self._admit(slot, consumer, shard.id)
            subscription = self._start(stream, shard, consumer, slot, counts, position)
        except FakeError:
            counts.refused += 1
            raise
        slot.succeeded_at = trio.current_time()
        if slot.active is not None:
            counts.taken_over += 1
            slot.active.fail(in_use(f"Another subscription took over for this consumer: {consumer_arn}"))
        counts.made += 1
        slot.active = subscription
        return subscription

    def _start(
        self,
        stream: StreamState,  # noqa: ARG002 - LoadSubscriptions needs it
        shard: ShardState,
        consumer: ConsumerState,
        slot: Slot,
        counts: SubscriptionCounts,
        position: Position,
    ) -> FakeSubscription:
        """Return the subscription of an accepted call. Raises FakeError: the position is invalid."""
        index = starting_index(shard, position, self._core.clock())
        return FakeSubscription(self._core, shard, consumer, slot, counts, index)

    def _admit(self, slot: Slot, consumer: ConsumerState, shard_id: str) -> None:
        settings, now = self._core.settings, trio.current_time()
        if now - slot.called_at < settings.subscribe_interval:
            raise limit_exceeded(f"Rate exceeded for consumer {consumer.arn} and shard {shard_id}")
        slot.called_at = now
        if consumer.status(self._core.clock()) != "ACTIVE":
            raise in_use(f"{consumer.title} is not in ACTIVE status.")
        if now - slot.succeeded_at < settings.takeover_after:
            raise in_use(f"Another active subscription exists for this consumer: {consumer.arn}")


class FakeSubscription:
    """The messages of one subscription, created one at a time on demand."""

    def __init__(
        self,
        core: Core,
        shard: ShardState,
        consumer: ConsumerState,
        slot: Slot,
        counts: SubscriptionCounts,
        index: int,
    ) -> None:
        self._core = core
        self._settings = core.settings
        self._shard = shard
        self._consumer = consumer
        self._slot = slot
        self._counts = counts
        self._index = index
        self._initial_response_sent = False
        self._ended = False
        self._error: FakeError | None = None
        self._changed = trio.Event()
        now = trio.current_time()
        self._expires_at = now + self._settings.subscription_life
        self._idle_at = now + self._settings.idle_interval
        counts.live += 1
        shard.listeners.add(self._wake)
        consumer.listeners.add(self._wake)

    def close(self) -> None:
        """Release the subscription, because its response stream has ended."""
        self._ended = True
        if self._wake in self._shard.listeners:
            self._counts.live -= 1
            self._shard.listeners.discard(self._wake)
            self._consumer.listeners.discard(self._wake)
        if self._slot.active is self:
            self._slot.active = None

    def fail(self, error: FakeError) -> None:
        """End the subscription with an exception in the event stream."""
        self._error = error
        self._wake()

    async def next_chunk(self) -> bytes | None:
        """Wait for the next message and return its bytes; return None at the end of the stream."""
        while (message := self._next_message()) is None and not self._ended:
            with trio.move_on_at(self._next_deadline()):
                await self._changed.wait()
            self._changed = trio.Event()
        return message

    def _wake(self) -> None:
        self._changed.set()

    def _next_deadline(self) -> float:
        return min(self._slot.paced_until if self._has_backlog() else self._idle_at, self._expires_at)

    def _next_message(self) -> bytes | None:
        """Return the message that is due now, or None. Set `_ended` if no other message follows."""
        now = trio.current_time()
        if self._ended:
            return None
        if self._consumer.deregistered and self._error is None:
            self._error = not_found(f"{self._consumer.title} not found.")
        if not self._initial_response_sent:
            self._initial_response_sent = True
            return INITIAL_RESPONSE
        self._check_key()
        if self._error is not None:
            self._ended = True
            return _exception(self._error)
        if now >= self._expires_at:
            self._ended = True
            return None
        return self._due_event(now)

    def _check_key(self) -> None:
        """End the subscription with the KMS error, if the stream's key fails."""
        try:
            self._shard.encryption.check()
        except FakeError as error:
            self._error = self._error or error

    def _due_event(self, now: float) -> bytes | None:
        if self._has_backlog():
            return self._records_event(now) if now >= self._slot.paced_until else None
        if not self._shard.is_open:
            self._ended = True
            children = [child.as_child() for child in self._shard.children]
            return _event(FakeEvent([], 0, child_shards=children))
        if now >= self._idle_at:
            self._idle_at = now + self._settings.idle_interval
            return _event(FakeEvent([], 0, self._shard.tick(self._core.millis)))
        return None

    def _has_backlog(self) -> bool:
        return self._index < self._shard.end_index

    def _records_event(self, now: float) -> bytes:
        records = self._shard.read(self._index, self._settings.event_records, self._settings.event_bytes)
        self._index = max(self._index, self._shard.trimmed) + len(records)
        self._idle_at = now + self._settings.idle_interval
        if (rate := self._settings.shard_bytes_per_second) is not None:
            size = sum(record.size for record in records)
            self._slot.paced_until = now + size / rate
        return _event(FakeEvent(records, self._behind(), records[-1].sequence_number))

    def _behind(self) -> int:
        return self._shard.behind_latest(self._index, self._core.millis)


def _event(event: FakeEvent) -> bytes:
    return eventstream.encode(EVENT_HEADERS, _encode(event))


def _exception(error: FakeError) -> bytes:
    headers = {":exception-type": error.code, ":content-type": JSON, ":message-type": "exception"}
    return eventstream.encode(headers, _encode({"message": error.message}))
