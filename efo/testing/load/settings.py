"""What a load consists of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

_MOST_BYTES: Final = 24 * 1024 * 1024
"""The longest message that AWS' event stream allows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What is served to whoever subscribes. Raises ValueError for what no Kinesis could serve.

    `shards`: of each stream, by its name. `record_bytes`: the data of one user record, which is random.
    `records_per_event`: Kinesis records in each event. `aggregated`: user records in each Kinesis record, as the KPL
    aggregates them; None: plain records. `rate`: user records per second that arrive in each shard; None: as many as
    the consumer takes. `seed`: of the data and keys.
    """

    shards: dict[str, int] = field(default_factory=lambda: {"load": 4})
    record_bytes: int = 200
    records_per_event: int = 500
    aggregated: int | None = None
    rate: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what no Kinesis could serve."""
        for name in ("record_bytes", "records_per_event", "aggregated", "rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}: it must be greater than 0")
        if not self.shards:
            raise ValueError("a load needs a stream")
        for name, count in self.shards.items():
            if count < 1:
                raise ValueError(f"shards of {name} is {count}: it must be greater than 0")
        size = self.user_records_per_event * self.record_bytes * 4 // 3
        if size > _MOST_BYTES:
            raise ValueError(f"events of {size} bytes: at most {_MOST_BYTES} are allowed; take fewer records per event")

    @property
    def user_records_per_event(self) -> int:
        """User records in each event."""
        return self.records_per_event * (self.aggregated or 1)

    @property
    def interval(self) -> float | None:
        """Seconds between the arrivals of a shard's events; None without a rate."""
        return None if self.rate is None else self.user_records_per_event / self.rate
