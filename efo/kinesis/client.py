"""The client of one stream, and its control plane: everything that differs between AWS, another endpoint and a fake."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from trio.abc import Stream

from efo.errors import ServiceError
from efo.model import AccountLimits, FanOutConsumer, Position, Shard, ShardRead, StreamDescription

Connect = Callable[[], Awaitable[Stream]]
"""Opens a byte stream on which the peer expects the HTTP/2 preface: TLS and ALPN are done.

Raises TransportError, and NotHttp2Error if the peer chose another protocol.
"""

Sign = Callable[[str, bytes], Awaitable[Sequence[tuple[str, str]]]]
"""Returns the headers that authenticate a POST with this `X-Amz-Target` and this body (SigV4)."""

Correct = Callable[[ServiceError, str | None], Awaitable[bool]]
"""Takes the error of a refused call, and the header `Date` of the refusal; returns whether it may succeed if it is
signed again at once: with other credentials, or at the service's time."""


class StreamLocation(TypedDict, total=False):
    """Where a stream is: keyword arguments that all openers take. `open_kinesis` says more of them.

    `region`: of AWS. `endpoint_url`: another endpoint than AWS's. `ca_file`: the certificate authorities to trust.
    `profile`: of the AWS configuration. `proxy_url`: the HTTP proxy. None, or left out: as botocore finds it.
    """

    region: str | None
    endpoint_url: str | None
    ca_file: str | None
    profile: str | None
    proxy_url: str | None


@dataclass(frozen=True)
class KinesisClient:
    """A client of one stream, made by `open_kinesis` or by a fake.

    `stream`: the stream's name. `control_plane`: its control calls. `connect`: opens connections of the data plane.
    `sign`: signs requests. `authority`: host, and port unless it is the scheme's default; the `:authority` of requests.
    `scheme`: "https", or "http" without TLS. `clock`: the local wall clock, seconds since the epoch. `service_time`:
    the service's clock, by its last `Date` header, if known. Positions in time use it, since the service rejects times
    in its future (rule R4). `stream_arn`: the stream's ARN, if it was opened by it; its calls then name it.
    `region`: of the stream; None for a fake. `correct`: see Correct.
    """

    stream: str
    control_plane: ControlPlane
    connect: Connect
    sign: Sign
    authority: str
    scheme: str
    clock: Callable[[], float]
    service_time: Callable[[], float] | None = None
    stream_arn: str | None = None
    region: str | None = None
    correct: Correct | None = None


class ControlPlane(Protocol):
    """The calls of Kinesis' control plane that efo makes, about one stream.

    Every method may raise ServiceError (and its children) and TransportError.
    """

    async def describe_stream(self) -> StreamDescription:
        """Describe the stream (AWS: DescribeStreamSummary)."""
        ...

    async def list_shards(self) -> Sequence[Shard]:
        """List all shards, open and closed, all pages (AWS: ListShards)."""
        ...

    async def shards_open_at(self, timestamp: float) -> frozenset[str]:
        """Return the ids of the shards that were open at a time, in seconds since the epoch (AWS: ListShards)."""
        ...

    async def behind_latest(self, shard_id: str, position: Position) -> int:
        """Return how far a position is behind the tip of its shard, in ms (AWS: GetRecords, MillisBehindLatest).

        It reads one record, which counts against the limits that all callers of GetRecords share. For operators' tools.
        """
        ...

    async def get_shard_iterator(self, shard_id: str, position: Position) -> str:
        """Return an iterator at a position of a shard, for `get_records` within 5 minutes (AWS: GetShardIterator)."""
        ...

    async def get_records(self, iterator: str, limit: int) -> ShardRead:
        """Read up to `limit` records (1 to 10,000) and 10 MiB (AWS: GetRecords). For operators' tools.

        All callers together may call it 5 times per second and shard, and read 2 MiB per second. An iterator that is
        too old raises ExpiredIteratorError.
        """
        ...

    async def list_consumers(self, stream_arn: str) -> Sequence[FanOutConsumer]:
        """List the stream's consumers, all pages (AWS: ListStreamConsumers)."""
        ...

    async def describe_consumer(self, stream_arn: str, name: str) -> FanOutConsumer:
        """Describe a consumer by its name (AWS: DescribeStreamConsumer)."""
        ...

    async def register_consumer(
        self, stream_arn: str, name: str, tags: Mapping[str, str] | None = None
    ) -> FanOutConsumer:
        """Register a consumer with these tags (AWS: RegisterStreamConsumer). Raises ResourceInUseError if it exists."""
        ...

    async def deregister_consumer(self, consumer_arn: str) -> None:
        """Deregister a consumer (AWS: DeregisterStreamConsumer). See rule R13."""
        ...

    async def describe_limits(self) -> AccountLimits:
        """Describe the account's limits (AWS: DescribeLimits, one call per second). For operators' tools."""
        ...

    async def has_advantage(self) -> bool:
        """Return whether the account has On-demand Advantage (AWS: DescribeAccountSettings). For operators' tools."""
        ...

    async def knows_dry_run(self, shard_id: str) -> bool:
        """Return whether the service knows DryRun: it is asked for an iterator of a shard (AWS: GetShardIterator).

        Of a service that ignores DryRun, `try_to_subscribe` would take the shard from its reader. AWS allows one dry
        run per second for a stream. For operators' tools.
        """
        ...

    async def try_to_read(self, shard_id: str) -> None:
        """Ask whether GetRecords would be accepted, with DryRun, which reads nothing. Raises why it is not."""
        ...

    async def try_to_subscribe(self, consumer_arn: str, shard_id: str) -> None:
        """Ask whether a subscription would be accepted, with DryRun (AWS: SubscribeToShard). Raises why it is not."""
        ...
