"""The settings of a producer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from efo.checks import check_count, check_number, check_type
from efo.errors import ConfigurationError

_NEED_KEYS: Final = ("aggregate", "ordered")
"""The settings that need a stream whose records have their keys' shards."""
MAX_REQUEST_RECORDS: Final = 500
"""The maximum number of Kinesis records of a request (AWS: PutRecords)."""
MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024
"""The maximum size of the data and partition keys of a request (AWS: PutRecords)."""
MAX_AGGREGATE_BYTES: Final = 1024 * 1024
"""The size that every stream accepts for a Kinesis record (AWS: MaxRecordSizeInKiB, minimum)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer puts records. Times are in seconds, sizes in bytes.

    `aggregate`: put several user records into one Kinesis record (KPL aggregation). Its readers must deaggregate, as
    efo, KCL and AWS's helpers for Lambda do. `aggregate_bytes`: the size at which an aggregate is complete; a larger
    user record is put alone.
    `aggregate` and `ordered` need the record distribution strategy USER_PARTITION_KEY, the default of streams. With
    AUTO, the service may place any record in any shard: KCL drops such aggregates, and a key has no order.
    `ordered`: keep the order of the records of a key, also when some of them must be repeated. Each shard then has one
    request in flight, with at most one record of a key, or one aggregate.
    `linger`: how long a record may wait for others before it is sent.
    `delivery_timeout`: a record that is not accepted within this time fails; until then it is sent again. A request
    that is in flight at that time is still awaited.
    `max_buffered_bytes`: with more records than this in the producer, `put` waits. Each record counts 256 bytes more
    than its data and its key.
    `max_in_flight`: the maximum number of requests at the same time.
    `max_request_records`, `max_request_bytes`: a request has no more than this. A single larger record is sent alone.
    `shard_share`: the share of each shard's 1,000 records/s and 1 MiB/s that this producer uses at most; with AUTO, of
    those of all open shards together. It uses less while the service throttles it, because others write too.
    `math.inf`: the rates are not limited here.
    `close_timeout`: how long a producer that is cancelled, or left by an exception, still sends what it has.

    Raises ConfigurationError.
    """

    aggregate: bool = False
    aggregate_bytes: int = 51_200
    ordered: bool = False
    linger: float = 0.1
    delivery_timeout: float = 120.0
    max_buffered_bytes: int = 32 * 1024 * 1024
    max_in_flight: int = 16
    max_request_records: int = MAX_REQUEST_RECORDS
    max_request_bytes: int = 1024 * 1024
    shard_share: float = 1.0
    close_timeout: float = 5.0

    def __post_init__(self) -> None:
        for name in ("aggregate", "ordered"):
            check_type(name, getattr(self, name), bool, "True or False")
        check_count("aggregate_bytes", self.aggregate_bytes, maximum=MAX_AGGREGATE_BYTES, unit=" bytes")
        check_count("max_buffered_bytes", self.max_buffered_bytes, unit=" bytes")
        check_count("max_in_flight", self.max_in_flight)
        check_count("max_request_records", self.max_request_records, maximum=MAX_REQUEST_RECORDS)
        check_count("max_request_bytes", self.max_request_bytes, maximum=MAX_REQUEST_BYTES, unit=" bytes")
        for name in ("linger", "close_timeout"):
            check_number(name, getattr(self, name), zero=True, unit=" seconds")
        check_number("delivery_timeout", self.delivery_timeout, unit=" seconds")
        check_number("shard_share", self.shard_share, infinite=True)
        if 1 < self.shard_share < float("inf"):
            raise ConfigurationError(
                f"shard_share={self.shard_share}: expected at most 1, since the service accepts no more, or math.inf"
            )
        if self.delivery_timeout <= self.linger:
            raise ConfigurationError(
                f"delivery_timeout={self.delivery_timeout}: expected more than linger, {self.linger} seconds"
            )


def impossible_with_auto(settings: ProducerSettings) -> tuple[str, ...]:
    """Return the names of what is set and cannot be kept on a stream with the record distribution strategy AUTO."""
    return tuple(name for name in _NEED_KEYS if getattr(settings, name))
