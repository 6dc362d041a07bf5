"""What is to be sent to one shard: a queue of entries, an aggregate that grows, and when they may be sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from random import Random
from typing import Final

from efo.producer.aggregate import AggregateBuilder
from efo.producer.entry import Entry
from efo.producer.settings import ProducerSettings
from efo.producer.shard_rate import ShardRate
from efo.protocol.backoff import backoff

MAX_BACKOFF: Final = 5.0
_FIRST_BACKOFF: Final = 0.1
SCANNED: Final = 1000
"""How many entries an ordered producer looks at, to find keys that are not in its request yet."""


class ShardQueue:
    """The entries for one shard, in the order in which they were put. Times are seconds of one monotonic clock.

    With the strategy AUTO it is the only queue, for all `shards`.

    `growing`: the aggregate to which user records are added; it comes after the queue. `misrouted`: an aggregate for
    this shard arrived in another one, so no more are sent until the shards are listed again.
    """

    def __init__(self, shard_id: str, settings: ProducerSettings, rng: Random, shards: int = 1) -> None:
        self.shard_id = shard_id
        self.entries: deque[Entry] = deque()
        self.growing: AggregateBuilder | None = None
        self.misrouted = False
        self._rate = ShardRate(settings.shard_share, shards)
        self._ordered = settings.ordered
        self._rng = rng
        self._in_flight = 0
        self._failures = 0
        self._paused_until = -inf
        self._put_from = inf  # no entry of the queue was put before, except one that was appended since

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits here."""
        return not self.entries and self.growing is None

    @property
    def oldest(self) -> float:
        """When the first of the waiting records was put; infinity if there is none."""
        if self.entries:
            return self.entries[0].put_at
        return inf if self.growing is None else self.growing.put_at

    def expires_from(self, timeout: float) -> float:
        """Return when `expired` may find something; infinity if nothing waits. It is never too late, maybe too early.

        What is sent again, or comes from another shard, may be older than the first entry.
        """
        self._put_from = min(self._put_from, self.entries[0].put_at) if self.entries else inf
        return min(self._put_from, inf if self.growing is None else self.growing.put_at) + timeout

    def requeue(self, entries: list[Entry], *, first: bool) -> None:
        """Add entries that were not put just now: before the others, or after them."""
        self._put_from = min([self._put_from, *(entry.put_at for entry in (*entries, *list(self.entries)[:1]))])
        if first:
            self.entries.extendleft(reversed(entries))
        else:
            self.entries.extend(entries)

    def blocked_until(self, now: float) -> float:
        """Return until when nothing may be sent; infinity: until a response arrives, or a list of the shards."""
        if self.misrouted or (self._ordered and self._in_flight):
            return inf
        return self._paused_until if now < self._paused_until else -inf

    def offer(self, now: float, records: int, size: int, *, is_first: bool) -> tuple[list[Entry], float, bool]:
        """Return the entries that may be sent now in a request that has room for so many, and so many bytes.

        `is_first`: the request has no other entries; it may then have one of any size. Also return when the shard
        accepts more, infinity if nothing is left for it, and whether the request has no room for the next entry.
        """
        rate_records, rate_bytes = self._rate.room(now)
        chosen: list[Entry] = []
        keys: set[bytes] = set()
        for position, entry in enumerate(self.entries):
            if self._ordered and not _fits_order(entry, chosen, keys):
                if position >= SCANNED or entry.order_key is None or chosen[0].order_key is None:
                    break
                continue
            is_alone = is_first and not chosen
            if len(chosen) >= records or ((entry.size > size or entry.alone) and not is_alone):
                return chosen, inf, True
            if len(chosen) >= rate_records or (entry.size > rate_bytes and (chosen or not self._rate.is_idle)):
                return chosen, self._rate.grows_at(), False
            chosen.append(entry)
            if entry.alone:
                return chosen, inf, True
            size -= entry.size
            rate_bytes -= entry.size
            if entry.order_key is not None:
                keys.add(entry.order_key)
        return chosen, inf, False

    def sent(self, entries: list[Entry]) -> None:
        """Take entries that `offer` returned out of the queue: a request with them is sent."""
        if all(first is entry for first, entry in zip(self.entries, entries, strict=False)):
            for _ in entries:
                self.entries.popleft()
        else:
            taken = set(map(id, entries))
            self.entries = deque(entry for entry in self.entries if id(entry) not in taken)
        if not self.entries:
            self._put_from = inf
        for entry in entries:
            entry.attempts += 1
        self._in_flight += 1
        self._rate.sent(len(entries), sum(entry.size for entry in entries))

    def settle(self, records: int, size: int, now: float, again: list[Entry], *, throttled: bool) -> None:
        """Note the end of a request with so many entries and bytes of this queue. `again`: those to be sent again."""
        self._in_flight -= 1
        self._rate.settle(records, size, now, throttled=throttled)
        if not again:
            self._failures = 0
            return
        self.requeue(again, first=True)
        self._failures += 1
        delay = backoff(self._failures, initial=_FIRST_BACKOFF, limit=MAX_BACKOFF, random=self._rng.random)
        self._paused_until = max(self._paused_until, now + delay)

    def expired(self, now: float, timeout: float) -> Iterable[Entry]:
        """Take the entries out of the queue whose first record was put at least `timeout` seconds ago."""
        if self.expires_from(timeout) > now:
            return ()
        late = [entry for entry in self.entries if entry.put_at + timeout <= now]
        self.entries = deque(entry for entry in self.entries if entry.put_at + timeout > now)
        self._put_from = min([entry.put_at for entry in self.entries], default=inf)
        return late


def _fits_order(entry: Entry, chosen: list[Entry], keys: set[bytes]) -> bool:
    """Return whether an ordered request may have this entry beside the chosen ones."""
    if entry.order_key is None:
        return not chosen
    return entry.order_key not in keys and not (chosen and chosen[0].order_key is None)
