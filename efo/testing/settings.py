"""The fake's settings: AWS's own numbers by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from efo.testing.server.sigv4 import Credential


@dataclass(frozen=True, kw_only=True, slots=True)
class FakeSettings:
    """How the fake behaves. Times are in seconds, sizes in bytes.

    `region`, `account`: of the ARNs. `epoch`: the wall-clock time at which the fake's own clock starts.
    `seed`: of the request ids. `retention_hours`: of new streams; what is older is trimmed.
    `credentials`: by access key id, who may sign requests; None: signatures are not looked at. Connections in memory
    need none in any case.
    `throttle`: whether the API's calls are limited per second, as AWS limits them (`efo.testing.state.throttle`).
    `throttle_writes`: whether PutRecord and PutRecords put at most 1 MiB and 1,000 records a second into a shard, and
    fail with ProvisionedThroughputExceededException beyond that (AWS: quotas and limits).
    `stream_creating`, `stream_updating`, `stream_deleting`: how long a stream stays in these states after the
    calls that lead there; `FakeKinesis.create_stream` and its neighbours take no time.
    `shard_limit`: how many open shards the account may have.
    `consumers_per_stream`: how many may be registered; AWS allows 20, and 50 with On-demand Advantage.
    `consumers_creating`: how many of a stream may be CREATING at once.
    `consumer_creating`, `consumer_deleting`: how long a consumer stays in these states.
    `subscription_life`: until a subscription ends by itself. `takeover_after`: a second subscribe sooner than
    this after the last success is refused, a later one takes over. `subscribe_interval`: the least time
    between two subscribes of one consumer to one shard. `idle_interval`: how long a subscription is quiet
    before an event without records is sent. (AWS: SubscribeToShard.)
    `event_records`, `event_bytes`: the most that one event carries; one larger record goes alone.
    `shard_bytes_per_second`: how fast one consumer gets one shard's data (AWS: 2 MiB/s); None: no pacing.
    `max_record_bytes`: data and partition key of one record, of new streams; MaxRecordSizeInKiB raises it to 10 MiB.
    `max_concurrent_streams`: what the HTTP/2 server announces.
    `memory_stream_bytes`: what one direction of an in-memory connection holds.
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
