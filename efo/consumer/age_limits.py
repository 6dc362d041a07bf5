"""The limits of age of one shard: what is too old to be delivered, and when its backlog is skipped (rule R11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from efo.events import Observer, RecordsDropped
from efo.model import Batch, Record
from efo.protocol.messages import SubscribeToShardEvent
from efo.settings import ConsumerSettings

DeadLetterOld = Callable[[Batch], Awaitable[bool]]
"""Stores the records of a batch as dead letters; False: a seek or a drain came first, and they are not done."""


class AgeLimits:
    """Decides what of a shard is too old, and reports what is dropped. Both limits are in seconds; None: no limit.

    `max_age`: records that arrived longer ago are dropped, when it is their turn to be delivered. `max_behind`: a shard
    that is further behind its tip goes on there. `service_time`: by the service's clock, which also stamps records.

    `dead_letter`: set by a reader that stores what it gives up: such records go there, and are not dropped.
    """

    def __init__(
        self,
        shard_id: str,
        max_age: float | None,
        max_behind: float | None,
        service_time: Callable[[], float],
        observer: Observer,
    ) -> None:
        self.dead_letter: DeadLetterOld | None = None
        self.max_age: Final = max_age
        self._shard_id = shard_id
        self._max_behind = max_behind
        self._service_time = service_time
        self._observer = observer
        self._is_delivered = False
        self._has_skipped = False

    def take_over(self) -> Callable[[Record], bool]:
        """Deliver what is too old like all else; return what tells it apart: the reader decides about it."""
        self._is_delivered = True
        return self._is_old

    def skips(self, event: SubscribeToShardEvent) -> bool:
        """Return whether this event, and all that is between it and the tip, is skipped; report that.

        Once, until the shard was seen within the limit: a service whose clock differs must not make a shard jump for
        ever. The end of a shard is delivered (rule R2).
        """
        behind = event.millis_behind_latest / 1000
        if self._max_behind is None or event.continuation_sequence_number is None:
            return False
        if behind <= self._max_behind:
            self._has_skipped = False
        if behind <= self._max_behind or self._has_skipped:
            return False
        self._has_skipped = True
        now, records = self._service_time(), event.records
        since = records[0].approximate_arrival_timestamp if records else 0.0
        self._observer(RecordsDropped(self._shard_id, "behind", since or now - behind, now, len(records)))
        return True

    async def sort(
        self, records: tuple[Record, ...], batch_of: Callable[[tuple[Record, ...]], Batch]
    ) -> tuple[Record, ...] | None:
        """Return the records that are young enough, when the others are done; None if they are not, and read again.

        `batch_of`: makes the batch of dead letters. Raises what storing them raises.
        """
        if self.max_age is None or self._is_delivered:
            return records
        old = tuple(record for record in records if self._is_old(record))
        if not old:
            return records
        if self.dead_letter is None:
            self._report(old)
        elif not await self.dead_letter(batch_of(old)):
            return None
        dropped = {id(record) for record in old}
        return tuple(record for record in records if id(record) not in dropped)

    def _is_old(self, record: Record) -> bool:
        """Whether a record is too old. One without a time of arrival, which AWS's model allows, never is."""
        arrived_at = record.approximate_arrival_timestamp
        return self.max_age is not None and 0.0 < arrived_at < self._service_time() - self.max_age

    def _report(self, old: Sequence[Record]) -> None:
        times = [record.approximate_arrival_timestamp for record in old]
        self._observer(RecordsDropped(self._shard_id, "too_old", min(times), max(times), len(old)))


def limits_of(
    shard_id: str, settings: ConsumerSettings, service_time: Callable[[], float], observer: Observer
) -> AgeLimits | None:
    """Return the limits of a shard; None if there are none, which then cost nothing."""
    max_age, max_behind = settings.max_record_age_seconds, settings.skip_when_behind_seconds
    if max_age is None and max_behind is None:
        return None
    return AgeLimits(shard_id, max_age, max_behind, service_time, observer)
