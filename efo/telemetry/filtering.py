"""Joins the user records that are filtered out of aggregates (rule R17): one report of a shard in an hour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from efo.events import Event, RecordsFiltered, ShardFinished, ShardStopped
from efo.protocol.aggregation import AggregateMode

REPORT_INTERVAL: Final = 3600.0
"""Seconds between two reports of a shard that goes on filtering."""
RECENT: Final = 600.0
"""Seconds for which what was filtered is told as a present state."""


@dataclass(slots=True)
class FilteredRecords:
    """The user records that were filtered out of a shard since its reading began. Times are of the clock."""

    records: int
    mode: AggregateMode
    last_at: float
    reported_at: float


class Filtering:
    """Knows what was filtered out of each shard that is read. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shards: dict[str, FilteredRecords] = {}

    def observe(self, event: Event) -> bool:
        """Note an event; return whether it is to be reported: the first of its shard, or of an hour."""
        match event:
            case RecordsFiltered(shard_id=shard_id):
                now = self._clock()
                if (found := self._shards.get(shard_id)) is None:
                    self._shards[shard_id] = FilteredRecords(event.records, event.mode, now, now)
                    return True
                found.records += event.records
                found.last_at = now
                if now - found.reported_at < REPORT_INTERVAL:
                    return False
                found.reported_at = now
                return True
            case ShardStopped(shard_id=shard_id) | ShardFinished(shard_id=shard_id):
                self._shards.pop(shard_id, None)
        return False

    def recent(self) -> dict[str, FilteredRecords]:
        """Return the shards that were filtered in the last ten minutes. May be called from any thread."""
        since = self._clock() - RECENT
        return {key: found for key, found in list(self._shards.items()) if found.last_at >= since}
