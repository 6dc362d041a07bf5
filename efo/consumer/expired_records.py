"""Finds records that expired before they were read, and reports them (rule R5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Final

import trio

from efo.errors import ServiceError, TransportError
from efo.events import Observer, RecordsExpired
from efo.kinesis.identity import StreamIdentity
from efo.model import Lease, Record
from efo.protocol.unread import MIN_RETENTION, Gap, Unread, expired, slack

FRESH_FOR: Final = 60.0
"""Seconds for which a retention period that was asked for is relied on: an operator may have changed it since."""
FIRST_PAUSE: Final = 60.0
"""Seconds between the first two reports of a shard that goes on losing records; each pause is twice the one before."""
MAX_PAUSE: Final = 3600.0
"""The longest pause in seconds."""


class ShardUnread:
    """What of one shard is unread, by time. `suspect`: called with each gap. `service_time`: of the service's clock."""

    def __init__(
        self,
        lease: Lease,
        suspect: Callable[[Gap], None],
        service_time: Callable[[], float],
        kept_for: Callable[[], float],
    ) -> None:
        checkpoint = lease.checkpoint
        self._unread = Unread(lease.unread_since, None if checkpoint.is_sentinel else checkpoint.sequence_number)
        self._suspect = suspect
        self._service_time = service_time
        self._kept_for = kept_for

    @property
    def since(self) -> float | None:
        """Since when records are unread: later than what was received; None if unknown."""
        return self._unread.since

    @property
    def was_open_at(self) -> float | None:
        """A time at which the shard was open: the records of its children arrived later. None if unknown."""
        return self._unread.was_open_at

    def received(self, records: Sequence[Record], behind: int) -> None:
        """Take the records of an event, and its MillisBehindLatest."""
        gap = self._unread.received(records, behind, self._service_time(), self._kept_for())
        if gap is not None:
            self._suspect(gap)

    def gone(self) -> None:
        """Note that the shard does not exist any more: all that was unread has expired."""
        if self.since is not None:
            self._suspect(Gap(self.since, None, self._service_time()))

    def restart(self, since: float | None, checkpoint: str | None = None) -> None:
        """Note that another place is read from now on. `since`, `checkpoint`: as of there, None if unknown."""
        self._unread.restart(since, checkpoint)


@dataclass(slots=True)
class _Loss:
    """What of one shard has expired. `until`: up to when, it is known. `unreported`: what is not reported yet.

    `due`: the next report is not before that (trio's clock), `pause`: and the one after it so many seconds later.
    """

    until: float = -inf
    unreported: RecordsExpired | None = None
    due: float = -inf
    pause: float = FIRST_PAUSE

    def add(self, shard_id: str, since: float, until: float) -> None:
        """Add what arrived from `since` to `until`. No time is counted twice."""
        since = max(since, self.until)
        if until <= since:
            return
        self.until = until
        before = self.unreported or RecordsExpired(shard_id, since, since, 0.0)
        self.unreported = RecordsExpired(shard_id, before.since, until, before.seconds + until - since)


class ExpiredRecords:
    """Judges the gaps of all shards of one consumer by the stream's retention period. `run` is its task."""

    def __init__(self, identity: StreamIdentity, service_time: Callable[[], float], observer: Observer) -> None:
        self._identity = identity
        self._service_time = service_time
        self._observer = observer
        self._gaps: list[tuple[str, Gap]] = []
        self._losses = defaultdict[str, _Loss](_Loss)
        self._suspected = trio.Event()

    def of_shard(self, lease: Lease) -> ShardUnread:
        """Return what is unread of the shard of a lease."""

        def suspect(gap: Gap) -> None:
            self._gaps.append((lease.key, gap))
            self._suspected.set()

        return ShardUnread(lease, suspect, self._service_time, lambda: min(MIN_RETENTION, self._retention))

    @property
    def _retention(self) -> float:
        """The retention period as last asked for, in seconds; the shortest one if the service does not tell it."""
        description = self._identity.description
        return MIN_RETENTION if description is None else description.retention_hours * 3600.0

    async def run(self) -> None:
        """Judge gaps until cancelled, and report what has expired: at once, and then with growing pauses."""
        try:
            while True:
                waiting = (loss.due for loss in self._losses.values() if loss.unreported is not None)
                due = min((due for due in waiting if due > trio.current_time()), default=inf)
                with trio.move_on_at(due):
                    await self._suspected.wait()
                    with suppress(ServiceError, TransportError):  # what was known before is nearly always right
                        await self._identity.look(trio.current_time() - FRESH_FOR)
                    self._suspected = trio.Event()
                    self._judge()
                self._report(trio.current_time())
        finally:
            self._judge()
            self._report(inf)

    def _judge(self) -> None:
        gaps, self._gaps = self._gaps, []
        for shard_id, gap in gaps:
            if (span := expired(gap, self._retention)) is not None:
                self._losses[shard_id].add(shard_id, *span)

    def _report(self, now: float) -> None:
        """Report what is due, and more than a start at the trim horizon may lose."""
        least = slack(self._retention)
        for loss in self._losses.values():
            if loss.unreported is not None and loss.due <= now and loss.unreported.seconds >= least:
                self._observer(loss.unreported)
                loss.unreported = None
                loss.due, loss.pause = now + loss.pause, min(2 * loss.pause, MAX_PAUSE)
