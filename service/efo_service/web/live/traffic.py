"""How many records and bytes each shard gets per second: totals from events, rates from samples of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from efo.events import Event, EventReceived, RecordsProcessed, ShardFinished, ShardStopped
from efo_service.web.live.shard_map import Rate

_SAMPLES: Final = 6
"""A rate is measured over this many samples at most, so that the events of an idle shard do not make it jump."""
_MEMORY: Final = 30.0
"""Seconds after which a sample is too old: nobody has looked for some time."""


class Traffic:
    """An observer that counts the processed records and the received bytes of each shard that is being read."""

    def __init__(self) -> None:
        self._records: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._samples: deque[tuple[float, dict[str, int], dict[str, int]]] = deque(maxlen=_SAMPLES)

    def __call__(self, event: Event) -> None:
        """Count one event. The frequent ones go first."""
        if isinstance(event, EventReceived):
            self._bytes[event.shard_id] = self._bytes.get(event.shard_id, 0) + event.wire_bytes
        elif isinstance(event, RecordsProcessed):
            self._records[event.shard_id] = self._records.get(event.shard_id, 0) + event.records
        elif isinstance(event, ShardFinished | ShardStopped):
            self._records.pop(event.shard_id, None)
            self._bytes.pop(event.shard_id, None)

    def sample(self, now: float) -> Mapping[str, Rate]:
        """Return the rates since the oldest sample that is kept, and keep one of now. Empty at the first call."""
        while self._samples and self._samples[0][0] < now - _MEMORY:
            self._samples.popleft()
        rates: dict[str, Rate] = {}
        if self._samples and (seconds := now - self._samples[0][0]) > 0:
            _, records, received = self._samples[0]
            for shard_id, total in self._bytes.items():
                processed = self._records.get(shard_id, 0)
                # A total that fell: the shard was read anew meanwhile.
                rates[shard_id] = Rate(
                    max(0, processed - records.get(shard_id, 0)) / seconds,
                    max(0, total - received.get(shard_id, 0)) / seconds,
                )
        self._samples.append((now, dict(self._records), dict(self._bytes)))
        return rates
