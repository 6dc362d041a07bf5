"""What happens to a producer: its requests, and what becomes of its records."""

from __future__ import annotations

from typing import Protocol

import msgspec


class ProducerReadings(Protocol):
    """What a producer holds, at any time and for any thread."""

    @property
    def buffered_records(self) -> int:
        """The number of records that were put and are neither stored nor given up."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """What counts against `max_buffered_bytes`."""
        ...


class ProducerOpened(msgspec.Struct, frozen=True):
    """A producer was opened. `readings`: what it holds, at any time."""

    readings: ProducerReadings


class PutRecordsCalled(msgspec.Struct, frozen=True):
    """A request of PutRecords ended. `records`: its Kinesis records. `again`: those of them that are sent again.

    `duration`: seconds. `data_bytes`: of data and partition keys. `error_type`: of the error of the whole request, or
    else of its first record that was refused; None if all were stored. `detail`: the text of that error.
    """

    records: int
    again: int
    duration: float
    data_bytes: int
    error_type: str | None = None
    detail: str = ""


class RecordsDelivered(msgspec.Struct, frozen=True):
    """A request stored records in a shard. `records`: user records. `kinesis_records`: those that carry them.

    `latency`: seconds since the first of them was put. `attempts`: the highest number of requests that one took.
    """

    shard_id: str
    records: int
    kinesis_records: int
    latency: float
    attempts: int


class RecordsNotDelivered(msgspec.Struct, frozen=True):
    """User records were given up; their deliveries raise DeliveryError."""

    records: int
    error_type: str
    detail: str


class DistributionChanged(msgspec.Struct, frozen=True):
    """A producer's stream has another record distribution strategy. `strategy`: AUTO or USER_PARTITION_KEY.

    `settings`: those of the producer that have no effect with AUTO: aggregate, ordered.
    """

    strategy: str
    settings: tuple[str, ...]


class ShardMapChanged(msgspec.Struct, frozen=True):
    """A producer uses another list of open shards. `shards`: how many.

    `repeated`: the user records that are sent again, because their aggregates arrived in another shard than expected.
    Some readers see those twice.
    """

    shards: int
    repeated: int
