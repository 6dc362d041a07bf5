"""The fake's settings. The defaults are AWS's limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from efo.testing.sigv4 import Credential


@dataclass(frozen=True, kw_only=True, slots=True)
class FakeSettings:
    """Settings of the fake. Times are in seconds, sizes in bytes.

    `region`, `account`: used in ARNs. `epoch`: the initial wall-clock time of the fake's own clock.
    `seed`: for request ids. `retention_hours`: retention period of new streams; older records are trimmed.
    `credentials`: by access key id, the credentials that may sign requests; None: signatures are not checked.
    In-memory connections need no signatures.
    `throttle`: whether API calls are limited per second as on AWS (`efo.testing.state.throttle`).
    `throttle_writes`: whether PutRecord and PutRecords are limited to 1 MiB and 1,000 records per second and shard.
    Beyond that they fail with ProvisionedThroughputExceededException (AWS: quotas and limits).
    `stream_creating`, `stream_updating`, `stream_deleting`: how long a stream stays in that state after the API call.
    A reshard takes effect when the stream is no longer UPDATING; with 0, at once.
    Methods of FakeKinesis such as `create_stream` and `split` change the stream at once.
    `shard_limit`: maximum number of open shards of the account.
    `consumers_per_stream`: maximum number of fan-out consumers; AWS allows 20, or 50 with On-demand Advantage.
    `on_demand_advantage`: whether DescribeAccountSettings says that the account has it. It is only what is said:
    `consumers_per_stream` is the limit.
    `consumers_creating`: maximum number of consumers of a stream that are CREATING at the same time.
    `consumer_creating`, `consumer_deleting`: how long a consumer stays in that state.
    `subscription_life`: maximum lifetime of a subscription. `takeover_after`: a subscribe sooner than this after the
    last success is rejected; a later one takes over. `subscribe_interval`: minimum time between two subscribes of one
    consumer to one shard. `idle_interval`: an event without records is sent after this time without events.
    (AWS: SubscribeToShard.)
    `event_records`, `event_bytes`: maximum size of an event; a single larger record is sent alone.
    `shard_bytes_per_second`: maximum rate of one consumer on one shard (AWS: 2 MiB/s); None: unlimited.
    `max_record_bytes`: maximum size of data and partition key of a record in new streams; MaxRecordSizeInKiB raises
    it to at most 10 MiB.
    `max_concurrent_streams`: the HTTP/2 server's SETTINGS_MAX_CONCURRENT_STREAMS.
    `memory_stream_bytes`: buffer size of one direction of an in-memory connection.
    """

    region: str = "us-east-1"
    account: str = "123456789012"
    epoch: float = 1_767_225_600.0  # 2026-01-01T00:00:00Z
    seed: int = 0
    retention_hours: int = 24
    credentials: Mapping[str, Credential] | None = None
    throttle: bool = True
    throttle_writes: bool = False
    stream_creating: float = 1.0
    stream_updating: float = 1.0
    stream_deleting: float = 1.0
    shard_limit: int = 20_000
    consumers_per_stream: int = 20
    on_demand_advantage: bool = False
    consumers_creating: int = 5
    consumer_creating: float = 1.0
    consumer_deleting: float = 1.0
    subscription_life: float = 300.0
    takeover_after: float = 5.0
    subscribe_interval: float = 1.0
    idle_interval: float = 5.0
    event_records: int = 1000
    event_bytes: int = 1024 * 1024
    shard_bytes_per_second: float | None = None
    max_record_bytes: int = 1024 * 1024
    max_concurrent_streams: int = 128
    memory_stream_bytes: int = 256 * 1024
