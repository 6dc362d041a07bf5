"""The settings of a load."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

_MAX_MESSAGE_BYTES: Final = 24 * 1024 * 1024
"""Maximum size of a message in AWS's event stream encoding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The records that subscribers receive. Raises ValueError for invalid values.

    `shards`: the number of shards of each stream, by name. `record_bytes`: size of the random data of a user record.
    `records_per_event`: Kinesis records per event. `aggregated`: user records per KPL aggregate; None: no aggregates.
    `rate`: user records per second that arrive in each shard; None: as many as the consumer reads. `seed`: for data
    and keys.
    """

    shards: dict[str, int] = field(default_factory=lambda: {"load": 4})
    record_bytes: int = 200
    records_per_event: int = 500
    aggregated: int | None = None
    rate: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for invalid values."""
        for name in ("record_bytes", "records_per_event", "aggregated", "rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}: it must be greater than 0")
        if not self.shards:
            raise ValueError("shards is empty: a load needs at least one stream")
        for name, count in self.shards.items():
            if count < 1:
                raise ValueError(f"shards of {name} is {count}: it must be greater than 0")
        size = self.user_records_per_event * self.record_bytes * 4 // 3
        if size > _MAX_MESSAGE_BYTES:
            raise ValueError(
                f"an event would have {size} bytes, more than {_MAX_MESSAGE_BYTES}: set fewer records_per_event"
            )

    @property
    def user_records_per_event(self) -> int:
        """User records per event."""
        return self.records_per_event * (self.aggregated or 1)

    @property
    def interval(self) -> float | None:
        """Seconds between the arrivals of two events of a shard; None without a rate."""
        return None if self.rate is None else self.user_records_per_event / self.rate
