"""What one SubscribeToShard call sends: its events, its end, and who may subscribe when.

All rules are AWS's (SubscribeToShard, SubscribeToShardEvent). Where AWS does not say: a consumer that is
deregistered ends its subscriptions with ResourceNotFoundException.
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


class SubscribeToShardEvent(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """One event (AWS: SubscribeToShardEvent). A continuation of None is left out, as are no children."""

    records: list[StoredRecord]
    millis_behind_latest: int
    continuation_sequence_number: str | None = None
    child_shards: list[ChildShard] = []


@dataclass(slots=True)
class SubscriptionCounts:
    """How often a shard was subscribed to: with success, refused, taken over; and how many are live."""

    made: int = 0
    refused: int = 0
    taken_over: int = 0
    live: int = 0


@dataclass(slots=True)
class Slot:
    """One consumer's access to one shard. Times are trio's clock."""

    called_at: float = float("-inf")
    succeeded_at: float = float("-inf")
    paced_until: float = float("-inf")
    active: Subscription | None = None


class Subscriptions:
    """Decides who may subscribe, and keeps the books."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._slots: dict[tuple[str, str], Slot] = {}
        self._counts: dict[tuple[str, str], SubscriptionCounts] = {}

    def counts(self, stream: str, shard_id: str) -> SubscriptionCounts:
        """Return the counters of one shard: a live object."""
        return self._counts.setdefault((stream, shard_id), SubscriptionCounts())

    def open(self, consumer_arn: str, shard_id: str, position: Position) -> Subscription:
        """Begin a subscription, taking over from an older one.

        Raises FakeError: ResourceNotFoundException (consumer or shard), LimitExceededException (a second
        call within a second), ResourceInUseException (the consumer is not ACTIVE, or less than 5 s since the
        last success), InvalidArgumentException (the position).
        """
        stream, consumer = self._core.consumer(consumer_arn)
        shard = stream.shard(shard_id)
        counts = self.counts(stream.name, shard_id)
        slot = self._slots.setdefault((consumer_arn, shard_id), Slot())
        try:
            self._admit(slot, consumer, shard_id)
            subscription = self._begin(stream, shard, consumer, slot, counts, position)
        except FakeError:
            counts.refused += 1
            raise
        slot.succeeded_at = trio.current_time()
        if slot.active is not None:
            counts.taken_over += 1
            slot.active.refuse(in_use(f"Another subscription took over for this consumer: {consumer_arn}"))
        counts.made += 1
        slot.active = subscription
        return subscription

    def _begin(
        self,
        stream: StreamState,  # noqa: ARG002 - a load tells by it what is its own
        shard: ShardState,
        consumer: ConsumerState,
        slot: Slot,
        counts: SubscriptionCounts,
        position: Position,
    ) -> Subscription:
        """Make what an admitted call gets. Raises FakeError: the position."""
        index = starting_index(shard, position, self._core.clock())
        return Subscription(self._core, shard, consumer, slot, counts, index)

    def _admit(self, slot: Slot, consumer: ConsumerState, shard_id: str) -> None:
        settings, now = self._core.settings, trio.current_time()
        if now - slot.called_at < settings.subscribe_interval:
            raise limit_exceeded(f"Rate exceeded for consumer {consumer.arn} and shard {shard_id}")
        slot.called_at = now
        if consumer.status(self._core.clock()) != "ACTIVE":
            raise in_use(f"Consumer {consumer.name} of {consumer.stream_arn} is not in ACTIVE status")
        if now - slot.succeeded_at < settings.takeover_after:
            raise in_use(f"Another active subscription exists for this consumer: {consumer.arn}")


class Subscription:
    """The frames of one subscription, made one at a time as they are asked for."""

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
        self._greeted = False
        self._over = False
        self._refusal: FakeError | None = None
        self._news = trio.Event()
        now = trio.current_time()
        self._expires_at = now + self._settings.subscription_life
        self._idle_at = now + self._settings.idle_interval
        counts.live += 1
        shard.listeners.add(self._wake)
        consumer.listeners.add(self._wake)

    def close(self) -> None:
        """Free what the subscription holds. The stream that carried it is over."""
        self._over = True
        if self._wake in self._shard.listeners:
            self._counts.live -= 1
            self._shard.listeners.discard(self._wake)
            self._consumer.listeners.discard(self._wake)
        if self._slot.active is self:
            self._slot.active = None

    def refuse(self, error: FakeError) -> None:
        """End the subscription by an exception in the stream."""
        self._refusal = error
        self._wake()

    async def next_chunk(self) -> bytes | None:
        """Wait for the next frame and return its bytes; None is the end of the stream."""
        while (frame := self._next_frame()) is None and not self._over:
            with trio.move_on_at(self._next_deadline()):
                await self._news.wait()
            self._news = trio.Event()
        return frame

    def _wake(self) -> None:
        self._news.set()

    def _next_deadline(self) -> float:
        return min(self._slot.paced_until if self._has_backlog() else self._idle_at, self._expires_at)

    def _next_frame(self) -> bytes | None:
        """Return what is due now, if anything is; set `_over` where nothing will follow it."""
        now = trio.current_time()
        if self._over:
            return None
        if self._consumer.deregistered and self._refusal is None:
            self._refusal = not_found(f"Consumer {self._consumer.arn} not found")
        if not self._greeted:
            self._greeted = True
            return INITIAL_RESPONSE
        self._check_key()
        if self._refusal is not None:
            self._over = True
            return _exception(self._refusal)
        if now >= self._expires_at:
            self._over = True
            return None
        return self._due_event(now)

    def _check_key(self) -> None:
        """Let a failing KMS key end the subscription, by the exception that the stream's model has for it."""
        try:
            self._shard.encryption.check()
        except FakeError as error:
            self._refusal = self._refusal or error

    def _due_event(self, now: float) -> bytes | None:
        if self._has_backlog():
            return self._records(now) if now >= self._slot.paced_until else None
        if not self._shard.is_open:
            self._over = True
            children = [child.as_child() for child in self._shard.children]
            return _event(SubscribeToShardEvent([], 0, child_shards=children))
        if now >= self._idle_at:
            self._idle_at = now + self._settings.idle_interval
            return _event(SubscribeToShardEvent([], 0, self._shard.tick(self._core.millis)))
        return None

    def _has_backlog(self) -> bool:
        return self._index < self._shard.end_index

    def _records(self, now: float) -> bytes:
        records = self._shard.read(self._index, self._settings.event_records, self._settings.event_bytes)
        self._index = max(self._index, self._shard.trimmed) + len(records)
        self._idle_at = now + self._settings.idle_interval
        if (rate := self._settings.shard_bytes_per_second) is not None:
            size = sum(len(record.data) + len(record.partition_key) for record in records)
            self._slot.paced_until = now + size / rate
        return _event(SubscribeToShardEvent(records, self._behind(), records[-1].sequence_number))

    def _behind(self) -> int:
        return self._shard.behind_latest(self._index, self._core.millis)


def _event(event: SubscribeToShardEvent) -> bytes:
    return eventstream.encode(EVENT_HEADERS, _encode(event))


def _exception(error: FakeError) -> bytes:
    headers = {":exception-type": error.code, ":content-type": JSON, ":message-type": "exception"}
    return eventstream.encode(headers, _encode({"message": error.message}))
