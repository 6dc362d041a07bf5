"""What is to be sent to one shard, when it may be sent, and how much the shard accepts.

Several shards among which the service distributes the records accept as many times as much, together.

A request counts from its sending until a second after its response. The service received it somewhere between, so two
records that it received within one second are both counted when the later one is sent. So a producer that writes alone
is never throttled, however its requests are delayed on the way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from random import Random
from typing import Final

from efo.producer.aggregate import AggregateBuilder
from efo.producer.entry import Entry
from efo.producer.settings import ProducerSettings
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


RECORDS_PER_SECOND: Final = 1000
BYTES_PER_SECOND: Final = 1024 * 1024
"""The limits of a shard, partition keys included (AWS: quotas and limits)."""
WINDOW: Final = 1.001
"""Seconds for which a request counts after its response. The thousandth is for clocks of milliseconds."""
CUT: Final = 0.7
"""The factor by which a throttled request lowers the share, at most once in a window."""
REGAIN: Final = 0.01, 0.05
"""What the share grows by in a second without throttling: a part of the limits, and a part of itself. So the share of
one among many producers goes down far enough, and that of one that is alone again comes back within a minute."""
MIN_SHARE: Final = 0.02


class ShardRate:
    """The rate limit of one shard. Times are seconds of one monotonic clock, sizes bytes.

    `share`: the part of the limits that may be used; infinity: no limit. `shards`: of how many shards it is the limit.
    """

    def __init__(self, share: float, shards: int = 1) -> None:
        self._most_records = RECORDS_PER_SECOND * shards
        self._most_bytes = BYTES_PER_SECOND * shards
        self._most = share
        self._share = share
        self._share_at = -inf
        self._records = 0
        self._bytes = 0
        self._settled: deque[tuple[float, int, int]] = deque()  # (until when it counts, records, bytes)

    def share(self, now: float) -> float:
        """Return the part of the limits that may be used now."""
        if self._share == self._most:
            return self._share
        growth = REGAIN[0] + REGAIN[1] * self._share
        return min(self._most, self._share + growth * (now - self._share_at))

    @property
    def is_idle(self) -> bool:
        """Whether no request counts, as `room` last saw it. A shard then takes one record of any size."""
        return not self._records

    def room(self, now: float) -> tuple[float, float]:
        """Return how many records and bytes may be sent now."""
        if self._most == inf:
            return inf, inf
        settled = self._settled
        while settled and settled[0][0] <= now:
            _, records, size = settled.popleft()
            self._records -= records
            self._bytes -= size
        share = self.share(now)
        most = max(1, int(self._most_records * share))
        return most - self._records, int(self._most_bytes * share) - self._bytes

    def grows_at(self) -> float:
        """Return when the next request ceases to count; infinity if all of them are in flight."""
        return self._settled[0][0] if self._settled else inf

    def sent(self, records: int, size: int) -> None:
        """Count a request."""
        if self._most != inf:
            self._records += records
            self._bytes += size

    def settle(self, records: int, size: int, now: float, *, throttled: bool) -> None:
        """Count the response to a request, or its failure. `throttled`: whether the shard refused records of it."""
        if self._most == inf:
            return
        if throttled and now >= self._share_at + WINDOW:
            self._share, self._share_at = max(MIN_SHARE, self.share(now) * CUT), now
        until = now + max(WINDOW, size / self._most_bytes)
        if self._settled:
            until = max(until, self._settled[-1][0])
        self._settled.append((until, records, size))
