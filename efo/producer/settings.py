"""The settings of a producer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from efo.definitions import check_settings, documented, setting
from efo.errors import ConfigurationError

_NEED_KEYS: Final = ("aggregate", "ordered")
"""The settings that need a stream whose records have their keys' shards."""
MAX_REQUEST_RECORDS: Final = 500
"""The maximum number of Kinesis records of a request (AWS: PutRecords)."""
MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024
"""The maximum size of the data and partition keys of a request (AWS: PutRecords)."""
MAX_AGGREGATE_BYTES: Final = 1024 * 1024
"""The size that every stream accepts for a Kinesis record (AWS: MaxRecordSizeInKiB, minimum)."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer puts records. Times are in seconds, sizes in bytes.

    `aggregate` and `ordered` need the record distribution strategy USER_PARTITION_KEY, the default of streams. With
    AUTO, the service may place any record in any shard: KCL drops such aggregates, and a key has no order. Raises
    ConfigurationError.
    """

    aggregate: bool = setting(
        False,
        "Put several user records into one Kinesis record (KPL aggregation). Its readers must deaggregate, as efo, KCL"
        " and AWS's helpers for Lambda do.",
    )
    aggregate_bytes: int = setting(
        51_200,
        "The size at which an aggregate is complete; a larger user record is put alone.",
        least=1,
        most=MAX_AGGREGATE_BYTES,
    )
    ordered: bool = setting(
        False,
        "Keep the order of the records of a key, also when some of them must be repeated. Each shard then has one"
        " request in flight, with at most one record of a key, or one aggregate.",
    )
    linger_seconds: float = setting(0.1, "How long a record may wait for others before it is sent.", least=0)
    delivery_timeout_seconds: float = setting(
        120.0,
        "A record that is not accepted within this time fails; until then it is sent again. A request that is in flight"
        " at that time is still awaited.",
        above=0,
    )
    max_buffered_bytes: int = setting(
        32 * 1024 * 1024,
        "With more records than this in the producer, `put` waits. Each counts 256 bytes more than its data and key.",
        least=1,
    )
    max_in_flight: int = setting(16, "Maximum number of requests at the same time.", least=1)
    max_request_records: int = setting(
        MAX_REQUEST_RECORDS, "Maximum number of Kinesis records of a request.", least=1, most=MAX_REQUEST_RECORDS
    )
    max_request_bytes: int = setting(
        1024 * 1024,
        "Maximum size of a request. A single larger record is sent alone.",
        least=1,
        most=MAX_REQUEST_BYTES,
    )
    shard_share: float = setting(
        1.0,
        "The share of each shard's 1,000 records/s and 1 MiB/s that this producer uses at most; with AUTO, of those of"
        " all open shards together. It uses less while the service throttles it, because others write too. math.inf:"
        " the rates are not limited here.",
        above=0,
        infinite=True,
    )
    close_timeout_seconds: float = setting(
        5.0, "How long a producer that is cancelled, or left by an exception, still sends what it has.", least=0
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if 1 < self.shard_share < float("inf"):
            raise ConfigurationError(
                f"shard_share={self.shard_share}: expected at most 1, since the service accepts no more, or math.inf"
            )
        if self.delivery_timeout_seconds <= self.linger_seconds:
            raise ConfigurationError(
                f"delivery_timeout_seconds={self.delivery_timeout_seconds}: expected more than linger_seconds,"
                f" {self.linger_seconds}"
            )


def impossible_with_auto(settings: ProducerSettings) -> tuple[str, ...]:
    """Return the names of what is set and cannot be kept on a stream with the record distribution strategy AUTO."""
    return tuple(name for name in _NEED_KEYS if getattr(settings, name))
