"""What a producer holds, and which request is sent next. Pure: it takes the time, and does no I/O.

    put -> the queue of the record's shard -> poll: a request -> settle: its results -> done, or back into the queue

A list of the shards that differs is applied while no request is in flight, so that no record of a key overtakes
another one of it. With the record distribution strategy AUTO, all shards are one queue, nothing is aggregated, and
records have no order.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Final

from efo.errors import ConfigurationError, CredentialsError, EfoError, ServiceError, ThrottledError, TransportError
from efo.producer.aggregate import AggregateBuilder, user_records
from efo.producer.entry import AcceptedRecord, Entry, Outgoing
from efo.producer.settings import ProducerSettings
from efo.producer.shard_map import ShardMap
from efo.producer.shard_queue import ShardQueue
from efo.protocol.aggregation import AGGREGATE_KEY, digest_of
from efo.protocol.denials import DOUBTS, Denials, is_odd

OVERHEAD: Final = 256
"""What a record counts in the buffer beyond its data and its key: the memory of its objects, about."""
NEEDS_KEY: Final = (
    "the record has no partition key, and the stream's record distribution strategy is USER_PARTITION_KEY: put it with "
    "a key, or switch the stream to AUTO"
)
REFUSED_WHOLE: Final = frozenset({"InvalidArgumentException", "ValidationException", "SerializationException"})
"""The codes of errors that one wrong record brings to all records of its request."""


@dataclass(slots=True, eq=False)
class PutRequest:
    """A request to send. `groups`: the queues with entries in it, and these entries."""

    groups: list[tuple[ShardQueue, list[Entry]]]

    @property
    def entries(self) -> list[Entry]:
        """The entries, in the order of the request."""
        return [entry for _, entries in self.groups for entry in entries]


@dataclass(frozen=True, slots=True)
class Applied:
    """What another list of the shards has brought.

    `stored`: entries that are stored after all. `repeated`: how many user records are sent again. `refused`: entries
    without a partition key, which were given up, since the stream requires one now.
    """

    stored: list[Entry]
    repeated: int
    refused: list[Entry]


@dataclass(frozen=True, slots=True)
class Settled:
    """What the end of a request has brought: the entries of a queue that are done, and those that are sent again."""

    shard_id: str
    stored: list[Entry]
    failed: list[Entry]
    again: int


class Buffer:
    """The records of one producer. Times are seconds of one monotonic clock.

    `is_stale`: whether a response has shown that the shards have changed since they were listed. `weight`: what it
    holds, in bytes. `in_flight`: the number of requests without a result.
    """

    def __init__(self, settings: ProducerSettings, shards: ShardMap, rng: Random) -> None:
        self._given = settings
        self._rng = rng
        self._use(shards)
        self._queues = [self._new_queue(shard_id) for shard_id in shards.shard_ids]
        self._active: dict[ShardQueue, None] = {}
        self._misrouted: list[tuple[ShardQueue, Entry]] = []  # `stored` says where they are instead
        self._denials = Denials()
        self._epoch = 0
        self._current = 0  # records of this epoch that are not done
        self._undone: Counter[int] = Counter()  # those of earlier ones
        self._full_records, self._full_bytes = settings.max_request_records, settings.max_request_bytes
        self._new_records = 0
        self._new_bytes = 0
        self.is_flushing = False
        self.is_stale = False
        self.weight = 0
        self.in_flight = 0

    def _use(self, shards: ShardMap) -> None:
        """Use a list of the shards, and the settings that are possible with its strategy."""
        given = self._given
        self._settings = replace(given, aggregate=False, ordered=False) if shards.is_auto else given
        self._aggregates, self._aggregate_bytes = self._settings.aggregate, given.aggregate_bytes
        self._map, self._starts = shards, shards.starts

    def _new_queue(self, shard_id: str) -> ShardQueue:
        return ShardQueue(shard_id, self._settings, self._rng, self._map.count if self._map.is_auto else 1)

    @property
    def is_auto(self) -> bool:
        """Whether the service distributes the records (strategy AUTO), as far as is known."""
        return self._map.is_auto

    def uses(self, shards: ShardMap) -> bool:
        """Return whether another list of the shards is like the one in use."""
        return shards.is_auto == self._map.is_auto and shards.ranges() == self._map.ranges()

    # --- putting -----------------------------------------------------------------------------------------

    def put(
        self, user: Outgoing, partition_key: str | None, key: bytes, data: bytes, explicit_hash_key: str | None = None
    ) -> bool:
        """Add a record; return whether `poll` should be called now rather than at the time that it returned.

        `key`: the partition key in UTF-8, empty if there is none.
        """
        digest = digest_of(key, explicit_hash_key)
        queue = self._queues[bisect_right(self._starts, digest) - 1]
        size = len(key) + len(data)
        self.weight += size + OVERHEAD
        self._current += 1
        self._new_bytes += size
        if self._aggregates:
            growing = queue.growing
            if growing is None or not growing.add(user, key, data, explicit_hash_key, self._aggregate_bytes):
                self._complete(queue)
                growing = queue.growing = AggregateBuilder(digest, user.put_at)
                growing.add(user, key, data, explicit_hash_key, self._aggregate_bytes)
        else:
            queue.entries.append(
                Entry(
                    [user],
                    partition_key,
                    data,
                    explicit_hash_key,
                    size=size,
                    weight=size + OVERHEAD,
                    order_key=digest,
                    epoch=self._epoch,
                )
            )
            self._new_records += 1
        # The queue is new to `poll`: the time that it returned is of the others, which may be blocked for long.
        is_new = queue not in self._active
        self._active[queue] = None
        is_full = self._new_bytes >= self._full_bytes or self._new_records >= self._full_records
        return is_new or is_full or self.is_flushing

    def _complete(self, queue: ShardQueue) -> None:
        """Move the growing aggregate of a queue to its queue."""
        builder, queue.growing = queue.growing, None
        if builder is not None:
            queue.entries.append(self._entry_of(builder, self._epoch))
            builder.changed()

    @staticmethod
    def _entry_of(builder: AggregateBuilder, epoch: int) -> Entry:
        if len(builder.users) == 1:
            key, data, explicit = builder.single()
            size = len(data) + len(key.encode())
            weight = size + OVERHEAD
        else:
            key, data = AGGREGATE_KEY, builder.build()
            explicit = str(int.from_bytes(builder.digest))
            size = len(data) + len(key)
            weight = builder.payload + len(builder.users) * OVERHEAD
        return Entry(builder.users, key, data, explicit, size=size, weight=weight, order_key=None, epoch=epoch)

    def flush(self) -> int:
        """Complete what grows, and return the number to ask `is_flushed` about: of all records that were put so far.

        While `is_flushing`, no record lingers.
        """
        for queue in self._active:
            self._complete(queue)
        if self._current:
            self._undone[self._epoch] = self._current
            self._epoch, self._current = self._epoch + 1, 0
        return self._epoch - 1

    def is_flushed(self, number: int) -> bool:
        """Return whether no record is left of those before a `flush`."""
        return not any(epoch <= number for epoch in self._undone)

    @property
    def records(self) -> int:
        """The number of user records that are not done."""
        return self._current + self._undone.total()

    # --- sending -----------------------------------------------------------------------------------------

    def poll(self, now: float) -> PutRequest | float:
        """Return the next request; or when to call again unless something happens before, infinity for never.

        That may be when `expire` is due.
        """
        self._new_records = self._new_bytes = 0
        linger = -inf if self.is_flushing else self._settings.linger_seconds
        records, size = self._settings.max_request_records, self._settings.max_request_bytes
        request, is_due, wake = PutRequest([]), False, self.expires_from()
        for queue in sorted(self._active, key=lambda queue: queue.oldest):
            if queue.growing is not None and queue.growing.put_at + linger <= now:
                self._complete(queue)
            if queue.is_empty:
                del self._active[queue]
                continue
            if (blocked := queue.blocked_until(now)) > now:
                wake = min(wake, blocked)
                continue
            entries, more_at, is_full = queue.offer(now, records, size, is_first=not request.groups)
            waiting = queue.growing.put_at if queue.growing is not None else inf
            if entries:
                request.groups.append((queue, entries))
                records -= len(entries)
                size -= sum(entry.size for entry in entries)
                is_due = is_due or entries[0].put_at + linger <= now or entries[0].attempts > 0
                waiting = min(waiting, entries[0].put_at)
            wake = min(wake, more_at, waiting + linger)
            if is_full:
                is_due = True
                break
        return self._send(request) if request.groups and is_due else wake

    def _send(self, request: PutRequest) -> PutRequest:
        for queue, entries in request.groups:
            queue.sent(entries)
            if queue.is_empty:  # `put` then asks for a call, since a time is new
                del self._active[queue]
        self.in_flight += 1
        return request

    # --- results -----------------------------------------------------------------------------------------

    def settle(self, request: PutRequest, results: Sequence[AcceptedRecord | EfoError], now: float) -> list[Settled]:
        """Note the results of a request, one for each of its entries, in order. Return what they have brought."""
        self.in_flight -= 1
        rest = iter(results)
        is_single = len(results) == 1
        settled = []
        for queue, entries in request.groups:
            outcome = Settled(queue.shard_id, [], [], 0)
            again: list[Entry] = []
            size, throttled = sum(entry.size for entry in entries), False
            for entry, result in zip(entries, rest, strict=False):
                if isinstance(result, AcceptedRecord):
                    self._stored(queue, entry, result, outcome, now)
                else:
                    throttled = throttled or isinstance(result, ThrottledError)
                    self._failed(entry, result, again, outcome, is_single=is_single, now=now)
            queue.settle(len(entries), size, now, again, throttled=throttled)
            if again:
                self._active[queue] = None
            settled.append(Settled(queue.shard_id, outcome.stored, outcome.failed, len(again)))
        return settled

    def _stored(self, queue: ShardQueue, entry: Entry, result: AcceptedRecord, outcome: Settled, now: float) -> None:
        if result.shard_id != queue.shard_id and not (self._map.is_auto and self._map.knows(result.shard_id)):
            self.is_stale = True
            if entry.is_aggregate:
                queue.misrouted = True
                entry.stored = result
                self._misrouted.append((queue, entry))
                return
        self._denials.worked()
        self._done(entry, result, now)
        outcome.stored.append(entry)

    def _failed(
        self, entry: Entry, error: EfoError, again: list[Entry], outcome: Settled, *, is_single: bool, now: float
    ) -> None:
        entry.error = error
        if isinstance(error, TransportError) and not isinstance(error, CredentialsError):
            entry.maybe_stored = True
        is_refused = isinstance(error, ServiceError) and error.code in REFUSED_WHOLE
        is_keyless = entry.partition_key is None
        if is_refused and (is_keyless or not is_single):
            entry.alone = True
            self.is_stale |= is_keyless  # the stream may require keys now: it is described again
        elif (entry.attempts > DOUBTS or not is_odd(error)) and self._denials.is_final(error, now):
            self._done(entry, None, now)
            outcome.failed.append(entry)
            return
        again.append(entry)

    def _done(self, entry: Entry, stored: AcceptedRecord | None, now: float) -> None:
        self.weight -= entry.weight
        if entry.epoch == self._epoch:
            self._current -= entry.records
        else:
            self._undone[entry.epoch] -= entry.records
            if not self._undone[entry.epoch]:
                del self._undone[entry.epoch]
        entry.finish(stored, now)

    def expires_from(self) -> float:
        """Return when `expire` may have something to do, whatever else waits; infinity for never."""
        timeout = self._settings.delivery_timeout_seconds
        queues = min((queue.expires_from(timeout) for queue in self._active), default=inf)
        return min(queues, *(entry.put_at + timeout for _, entry in self._misrouted), inf)

    def expire(self, now: float) -> list[Entry]:
        """Give up the records that were put too long ago and are not in flight; return their entries."""
        timeout = self._settings.delivery_timeout_seconds
        late: list[Entry] = []
        for queue in self._active:
            if queue.growing is not None and queue.growing.put_at + timeout <= now:
                self._complete(queue)
            late += queue.expired(now, timeout)
        kept = []
        for queue, entry in self._misrouted:
            if entry.put_at + timeout <= now:
                entry.maybe_stored = True
                late.append(entry)
            else:
                kept.append((queue, entry))
        self._misrouted = kept
        for entry in late:
            self._done(entry, None, now)
        return late

    def fail_all(self, requests: Iterable[PutRequest], now: float) -> list[Entry]:
        """Give up all records, those of these requests too, which were cancelled; return their entries."""
        self.flush()
        left = [entry for queue in self._active for entry in queue.entries]
        for request in requests:
            for entry in request.entries:
                entry.maybe_stored = True
                left.append(entry)
        for _, entry in self._misrouted:
            entry.maybe_stored = True
            left.append(entry)
        self._active, self._misrouted = {}, []
        for queue in self._queues:
            queue.entries.clear()
        for entry in left:
            self._done(entry, None, now)
        return left

    # --- the shards --------------------------------------------------------------------------------------

    def accepts(self, shards: ShardMap) -> bool:
        """Return whether a list of the shards has all shards from which responses came."""
        return all(entry.stored and shards.knows(entry.stored.shard_id) for _, entry in self._misrouted)

    def apply(self, shards: ShardMap, now: float) -> Applied:
        """Use another list of the shards, which it `accepts`. No request may be in flight.

        An aggregate that arrived in a shard that does not have the hash keys of all its user records is sent again:
        readers drop those of them that belong to another shard, or all (KCL).
        """
        before = dict(zip(self._map.ranges(), self._queues, strict=True))
        refused = [] if shards.is_auto else self._refuse_keyless(now)
        self._use(shards)
        self._queues = [before.pop(key) if key in before else self._new_queue(key[0]) for key in shards.ranges()]
        self.is_stale = False
        stored, again = [], 0
        first: dict[ShardQueue, list[Entry]] = {}
        for queue, entry in self._misrouted:
            queue.misrouted = False
            assert entry.stored is not None  # noqa: S101 - `_stored` has set it
            if shards.covers(entry.stored.shard_id, _digests(entry)):
                self._done(entry, entry.stored, now)
                stored.append(entry)
            else:
                entry.stored, entry.maybe_stored = None, True
                again += entry.records
                self._route(entry, first)
        self._misrouted = []
        for queue, entries in first.items():
            queue.requeue(entries, first=True)
        rest: dict[ShardQueue, list[Entry]] = {}
        for queue in before.values():
            self._complete(queue)
            self._active.pop(queue, None)
            for entry in queue.entries:
                entry.alone = False  # it is not the entry that was refused, if the strategy was
                self._route(entry, rest)
        for queue, entries in rest.items():
            queue.requeue(entries, first=False)
        self._active.update(dict.fromkeys((*first, *rest)))
        return Applied(stored, again, refused)

    def _refuse_keyless(self, now: float) -> list[Entry]:
        """Give up the entries without a partition key: the stream requires one now."""
        refused = []
        for queue in self._queues:
            if keyless := [entry for entry in queue.entries if entry.partition_key is None]:
                queue.entries = deque(entry for entry in queue.entries if entry.partition_key is not None)
                refused += keyless
        for entry in refused:
            entry.error = ConfigurationError(NEEDS_KEY)
            self._done(entry, None, now)
        return refused

    def _route(self, entry: Entry, routed: dict[ShardQueue, list[Entry]]) -> None:
        """Append an entry to those of its queue; an aggregate in as many parts as it has queues now.

        With AUTO, each user record is a part: readers may drop an aggregate that the service has placed.
        """
        if not entry.is_aggregate:
            queue = self._queue_of(digest_of((entry.partition_key or "").encode(), entry.explicit_hash_key))
            routed.setdefault(queue, []).append(entry)
            return
        parts: dict[object, tuple[ShardQueue, AggregateBuilder]] = {}
        for user, (partition_key, data, explicit) in zip(entry.users, user_records(entry), strict=True):
            key = partition_key.encode()
            digest = digest_of(key, explicit)
            queue = self._queue_of(digest)
            part_of = user if self._map.is_auto else queue
            if part_of not in parts:
                parts[part_of] = queue, AggregateBuilder(digest, user.put_at)
            parts[part_of][1].add(user, key, data, explicit, sys.maxsize)
        for queue, builder in parts.values():
            part = self._entry_of(builder, entry.epoch)
            part.attempts, part.error, part.maybe_stored = entry.attempts, entry.error, entry.maybe_stored
            routed.setdefault(queue, []).append(part)
        entry.users = []
        entry.changed()

    def _queue_of(self, digest: bytes) -> ShardQueue:
        return self._queues[self._map.index_of(digest)]


def _digests(entry: Entry) -> Iterable[bytes]:
    return (digest_of(key.encode(), explicit) for key, _, explicit in user_records(entry))
