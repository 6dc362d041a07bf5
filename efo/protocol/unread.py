"""Up to which time a shard was read, and what may have expired since before it was read (rule R5). Pure.

The service keeps a record for the stream's retention period. A reader whose position is older starts at the oldest
record that is left, and nothing tells it so: neither an error nor a sequence number, which has no documented time. So
efo notes, with the checkpoint, since when records are unread. If that is longer ago than the retention period, what
arrived in between is gone. Whether anything arrived cannot be known: nobody can read it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from efo.model import Record

MIN_RETENTION: Final = 24 * 3600.0
"""The shortest retention period of AWS, in seconds: what is younger cannot have expired, whatever the stream's is."""
_SLACK: Final = 1 / 1440
"""See `slack`: a minute of a day."""


class Gap(msgspec.Struct, frozen=True):
    """Records that arrived from `since` to `until` may have expired unread, as was seen at `seen`.

    Seconds since the epoch. `until` is None if no record shows it: then the trim horizon is the end.
    """

    since: float
    until: float | None
    seen: float


def slack(retention: float) -> float:
    """Return the seconds that a reader may lose in all without a report, and that the next record may be late.

    A start at the trim horizon runs just before it for a while, and meets pauses between records.
    """
    return retention * _SLACK


def expired(gap: Gap, retention: float) -> tuple[float, float] | None:
    """Return from when to when arrived what has expired unread, if anything did; None if nothing can have expired.

    `retention`: the retention period of the stream in seconds.
    """
    horizon = gap.seen - retention
    if gap.since >= horizon:
        return None
    if gap.until is None or gap.until >= horizon:
        return gap.since, horizon
    # The service still has records from before the horizon: this one may well be the next after the last that was read.
    return None if gap.until - gap.since < slack(retention) else (gap.since, gap.until)


class Unread:
    """Since when the records of a shard are unread: `since`, None if unknown.

    `checkpoint`: the sequence number of the record at which the reading starts. If it is there, nothing after it has
    expired. `was_open_at`: a time at which the shard was open; the records of its children arrived later.
    """

    __slots__ = ("_checkpoint", "since", "was_open_at")

    def __init__(self, since: float | None, checkpoint: str | None = None) -> None:
        self.since = since
        self.was_open_at = since
        self._checkpoint = checkpoint

    def received(self, records: Sequence[Record], behind: int, seen: float, kept_for: float) -> Gap | None:
        """Take the records of an event; return a gap before them, if they may not follow on what was read before.

        `behind`: MillisBehindLatest. `seen`: when the event was received, by the service's clock. `kept_for`: seconds
        in which nothing can expire.
        """
        since, first = self.since, self._checkpoint
        if records:
            oldest = records[0].approximate_arrival_timestamp or None
            newest = records[-1].approximate_arrival_timestamp or None
            is_next = first is not None and records[0].sequence_number == first
            self._checkpoint = None
            self.was_open_at = newest or self.was_open_at
            self.since = (newest or since) if behind else seen
        else:
            oldest, is_next = None, False
            if not behind:
                self.since = self.was_open_at = seen
        if since is None or is_next or since >= seen - kept_for:
            return None
        return Gap(since, oldest, seen)

    def restart(self, since: float | None, checkpoint: str | None = None) -> None:
        """Start at another place. `since`, `checkpoint`: as of there."""
        self.since, self._checkpoint = since, checkpoint
