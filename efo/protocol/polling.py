"""The polling of one shard as a state machine: no I/O, no clock; `now` is a parameter.

1. Polling is a chain of calls: GetShardIterator at the position, then GetRecords with the iterator of the page before.
   One call is made at a time, and only when the owner wants an event: what was not asked for is not buffered.
2. An iterator expires after 5 minutes. The next one is AFTER the last record that was delivered, or at the original
   position if none was (R4). So no record is lost or repeated, whether an iterator expired or a process ended.
3. A page without records has no continuation, unlike an event of SubscribeToShard. Its event has the last record's
   number, or zero if there was none, so it moves no checkpoint (R3).
4. A page without an iterator, with child shards, is the end of the shard (R2). This is final.
5. All callers together may make five calls a second and read 2 MiB a second of a shard. The pace leaves one of the five
   to others. A shard that is behind is read at this pace. One that is current is read less often: each page without
   records doubles the interval, each one with records halves it.
6. When the service throttles, others read the shard too: the pace halves, and rises again with each page.
7. An error that is final is passed to the owner, which says which ones are; an odd one, when it has repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from efo.errors import EfoError, EventError, ExpiredIteratorError, ThrottledError
from efo.health import SubscriptionState
from efo.model import ChildShard, Position, PositionType, Record
from efo.protocol.backoff import Backoff
from efo.protocol.denials import Doubts, is_final, is_odd
from efo.protocol.messages import (
    DECODE_ERRORS,
    SubscribeToShardEvent,
    UntimedRecord,
    check_children,
    check_sequence_numbers,
)
from efo.protocol.native import STEP, Step
from efo.protocol.subscription import Deliver, Fail, Finish, last_before
from efo.third_party_errors import reason_of

MIN_INTERVAL: Final = 0.25
"""Seconds between two calls of GetRecords for a shard. AWS allows five a second to all callers together; this leaves
one of them to others, such as `efo tail`."""
BYTES_PER_SECOND: Final = 2 * 1024 * 1024
"""What all callers of GetRecords may read of a shard in a second (AWS: quotas and limits). A larger page is followed by
as many seconds without a call as it has times 2 MiB."""
ITERATOR_LIFE: Final = 290.0
"""Seconds after which an iterator is not used any more: the service refuses it after 300 s."""
MAX_SLOWDOWN: Final = 16.0
"""How many times longer than MIN_INTERVAL the interval becomes at most by throttling."""
_RECOVERY: Final = 0.8
_MAX_BACKOFF: Final = 8.0


class GetIterator(msgspec.Struct, frozen=True):
    """Call GetShardIterator at this position."""

    position: Position


class Poll(msgspec.Struct, frozen=True):
    """Call GetRecords with this iterator."""

    iterator: str


class Polling:
    """Polls one shard: make the `next_call` at `due`, and report its outcome by `started`, `received` or `failed`.

    `position`: where to start; it moves with every record. `random`: returns a number from 0 to 1. `interval`: the most
    seconds between two calls for a shard that is current. `is_final`: whether an error ends the polling.
    """

    def __init__(
        self,
        position: Position,
        random: Callable[[], float],
        *,
        interval: float,
        is_final: Callable[[EfoError], bool] = is_final,
    ) -> None:
        self.position = position
        self.state: SubscriptionState = "connecting"
        self.due = float("-inf")
        """When the next call may be made."""
        self._max_interval = max(interval, MIN_INTERVAL)
        self._interval = MIN_INTERVAL
        self._slowdown = 1.0
        self._backoff = Backoff(random, limit=_MAX_BACKOFF)
        self._doubts = Doubts(is_final)
        self._iterator: str | None = None
        self._iterator_since = float("-inf")
        self._has_page = False  # since the iterator was obtained by GetShardIterator
        # Records up to this sequence number were delivered or are before the start.
        self._delivered = last_before(position)

    def next_call(self, now: float) -> GetIterator | Poll:
        """Return the call to make now."""
        if self._iterator is None or now - self._iterator_since >= ITERATOR_LIFE:
            self._iterator = None
            return GetIterator(self.position)
        return Poll(self._iterator)

    def started(self, iterator: str, now: float) -> None:
        """Take the iterator that GetShardIterator returned. `now`: when it was called."""
        self._iterator, self._iterator_since, self._has_page = iterator, now, False

    def received(self, page: RecordsPage, wire_bytes: int, now: float) -> list[Deliver | Finish]:
        """Take a page; return what to deliver. `now`: when GetRecords was called. `wire_bytes`: the response's size."""
        self._backoff.reset()
        self._doubts.settled()
        self._slowdown = max(1.0, self._slowdown * _RECOVERY)
        self._iterator, self._iterator_since, self._has_page = page.next_shard_iterator, now, True
        self.due = now + self._pause_after(page)
        records = page.records
        if records and int(records[0].sequence_number) <= self._delivered:
            records = tuple(record for record in records if int(record.sequence_number) > self._delivered)
        if records:
            self._delivered = int(records[-1].sequence_number)
            self.position = Position.after(records[-1].sequence_number)
        behind = page.millis_behind_latest or 0
        if page.child_shards:
            self.state = "ended"
            last = SubscribeToShardEvent(records, behind, None, page.child_shards)
            return [Deliver(last, wire_bytes), Finish(page.child_shards)]
        self.state = "live"
        return [Deliver(SubscribeToShardEvent(records, behind, self._continuation), wire_bytes)]

    def failed(self, error: EfoError, now: float) -> list[Fail]:
        """Take the failure of a call; return it if it is final, otherwise the call is repeated."""
        if self._doubts.is_final(error):
            self.state = "failed"
            return [Fail(error)]
        if is_odd(error):
            self._iterator = None  # perhaps it was what is refused
        if isinstance(error, ExpiredIteratorError):
            self._iterator = None
            if self._has_page:  # one that expires at once is no matter of time: back off
                self.due = now
                return []
        if isinstance(error, ThrottledError):
            self._slowdown = min(MAX_SLOWDOWN, self._slowdown * 2)
        self.state = "waiting"
        self.due = now + MIN_INTERVAL + self._backoff.next(error)
        return []

    @property
    def _continuation(self) -> str:
        if self.position.type is PositionType.AFTER_SEQUENCE_NUMBER and self.position.sequence_number:
            return self.position.sequence_number
        return "0"

    def _pause_after(self, page: RecordsPage) -> float:
        """Return the seconds from the call for this page until the next one may be made."""
        size = sum([len(record.data) + len(record.partition_key or "") for record in page.records])
        pause = max(MIN_INTERVAL * self._slowdown, size / BYTES_PER_SECOND)
        if page.millis_behind_latest:
            self._interval = MIN_INTERVAL
            return pause
        if page.records:
            self._interval = max(MIN_INTERVAL, self._interval / 2)
        pause = max(pause, self._interval)
        if not page.records:
            self._interval = min(self._max_interval, self._interval * 2)
        return pause


class RecordsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """A page of records, as the service sends it (AWS: GetRecords).

    `next_shard_iterator`: None at the end of the shard. Then the page has `child_shards` (rule R2).
    `millis_behind_latest`: how far the end of the page is behind the tip of the shard.
    """

    records: tuple[Record, ...]
    next_shard_iterator: str | None = None
    millis_behind_latest: int | None = None
    child_shards: tuple[ChildShard, ...] | None = None


class _UntimedPage(msgspec.Struct, frozen=True, rename="pascal"):
    """A page whose records may have no arrival time."""

    records: tuple[UntimedRecord, ...]
    next_shard_iterator: str | None = None
    millis_behind_latest: int | None = None
    child_shards: tuple[ChildShard, ...] | None = None

    def with_timestamps(self) -> RecordsPage:
        """Return the page, with 0 for missing arrival times."""
        records = tuple(record.with_timestamps() for record in self.records)
        return RecordsPage(records, self.next_shard_iterator, self.millis_behind_latest, self.child_shards)


class _IteratorResponse(msgspec.Struct, frozen=True, rename="pascal"):
    shard_iterator: str


_PAGE: Final = msgspec.json.Decoder(RecordsPage)
_UNTIMED_PAGE: Final = msgspec.json.Decoder(_UntimedPage)
_ITERATOR: Final = msgspec.json.Decoder(_IteratorResponse)


def parse_page(body: bytes, step: Step | None = STEP) -> RecordsPage:
    """Return the page of a response. Raises EventError if it is invalid, or half an end of a shard (rule R2)."""
    try:
        page = (step and _native_page(body, step)) or _decode_page(body)
    except DECODE_ERRORS as error:
        raise EventError(f"the response to GetRecords cannot be parsed: {reason_of(error)}") from None
    children = page.child_shards or ()
    # To end the shard at a page without children would leave them unknown; with an iterator, there may be more.
    if (not page.next_shard_iterator) != bool(children):
        found = "an iterator and child shards" if children else "neither an iterator nor child shards"
        raise EventError(f"the response to GetRecords has {found}: exactly one of them is allowed")
    check_children(children)
    check_sequence_numbers(page.records)
    return page


def _native_page(body: bytes, step: Step) -> RecordsPage | None:
    """Return the page; None if the Python step has to read it, or to tell what is wrong besides the records."""
    if (read := step.page(body)) is None:
        return None
    records, without_records = read
    try:
        rest = _PAGE.decode(without_records)
    except DECODE_ERRORS:
        return None
    return RecordsPage(records, rest.next_shard_iterator, rest.millis_behind_latest, rest.child_shards)


def parse_iterator(body: bytes) -> str:
    """Return the iterator in a response to GetShardIterator. Raises EventError."""
    try:
        return _ITERATOR.decode(body).shard_iterator
    except DECODE_ERRORS as error:
        raise EventError(f"the response to GetShardIterator cannot be parsed: {reason_of(error)}") from None


def _decode_page(body: bytes) -> RecordsPage:
    try:
        return _PAGE.decode(body)
    except msgspec.ValidationError:
        return _UNTIMED_PAGE.decode(body).with_timestamps()
