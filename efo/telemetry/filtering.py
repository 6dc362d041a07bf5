"""Joins what is left out of shards, filtered (rule R17) or too old: one report of a shard in an hour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from efo.events import Event, RecordsDropped, RecordsFiltered, ShardFinished, ShardStopped
from efo.protocol.aggregation import AggregateMode

REPORT_INTERVAL: Final = 3600.0
"""Seconds between two reports of a shard that goes on leaving records out."""
RECENT: Final = 600.0
"""Seconds for which what was left out is reported as a present state."""

Why = Literal["filtered", "too_old", "behind"]
"""Why records are left out: rule R17, or a limit of age."""


@dataclass(slots=True)
class LeftOut:
    """The user records that were left out of a shard since its reading began. Times are of the clock.

    `mode`: of what was filtered last.
    """

    records: int
    mode: AggregateMode
    last_at: float
    reported_at: float


class Filtering:
    """Knows what was left out of each shard that is read. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shards: dict[str, dict[Why, LeftOut]] = {}

    def observe(self, event: Event) -> bool:
        """Note an event; return whether it is to be reported: the first of its shard, or of an hour; each jump."""
        match event:
            case RecordsFiltered(shard_id=shard_id):
                return self._note(shard_id, "filtered", event.records, event.mode)
            case RecordsDropped(shard_id=shard_id):
                return self._note(shard_id, event.reason, event.records) or event.reason == "behind"
            case ShardStopped(shard_id=shard_id) | ShardFinished(shard_id=shard_id):
                self._shards.pop(shard_id, None)
        return False

    def _note(self, shard_id: str, why: Why, records: int, mode: AggregateMode = AggregateMode.DEDUPLICATE) -> bool:
        now, of_shard = self._clock(), self._shards.setdefault(shard_id, {})
        if (found := of_shard.get(why)) is None:
            of_shard[why] = LeftOut(records, mode, now, now)
            return True
        found.records += records
        found.last_at = now
        if now - found.reported_at < REPORT_INTERVAL:
            return False
        found.reported_at = now
        return True

    def recent(self, why: Why = "filtered") -> dict[str, LeftOut]:
        """Return the shards of which records were left out in the last ten minutes. May be called from any thread."""
        since = self._clock() - RECENT
        shards = ((key, of_shard.get(why)) for key, of_shard in list(self._shards.items()))
        return {key: found for key, found in shards if found is not None and found.last_at >= since}
