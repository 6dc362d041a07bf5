"""The control plane of one stream.

The reads that a start needs are first tried once over efo's own HTTP/2, which is ready in a fraction of the time that
aiobotocore takes to be imported and to make a client. Whatever fails there is repeated through aiobotocore, with its
retries. All other calls go through aiobotocore.

"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, Final

import trio

from efo.aws.clock import ServiceClock
from efo.aws.credentials import CredentialSource
from efo.aws.wrong_server import wrong_content
from efo.errors import (
    CredentialsError,
    EfoError,
    InternalFailureError,
    NotHttp2Error,
    ProtocolError,
    ResourceNotFoundError,
    ServiceError,
    SilenceError,
    TransportError,
    WrongEndpointError,
)
from efo.kinesis.aws.errors import translated
from efo.kinesis.client import StreamLocation
from efo.kinesis.service_call import ServiceCaller
from efo.model import (
    AccountLimits,
    ChildShard,
    FanOutConsumer,
    HashKeyRange,
    Position,
    PositionType,
    Record,
    Shard,
    ShardRead,
    StreamDescription,
    is_shard_id,
)

DIRECT_READS: Final = {
    "describe_stream_summary": "DescribeStreamSummary",
    "describe_stream_consumer": "DescribeStreamConsumer",
    "list_shards": "ListShards",
}
"""The reads that are tried without aiobotocore: botocore's name, and AWS's."""
DRY_RUN_SUCCEEDED: Final = "DryRunOperationException"
"""The code of the answer to a valid request with DryRun."""
MAX_PAGES: Final = 1000
"""The most pages of a listing. A page has up to 1,000 shards; a service that always names a next one has no end."""


class AwsControlPlane:
    """Implements ControlPlane.

    `aiobotocore`, `direct`: both ways to call the service. `arn`: the stream's ARN, if it is known; the stream is then
    named by it. `check_scheme`: raises WrongEndpointError if the endpoint has TLS where its URL has none.
    """

    def __init__(
        self,
        aiobotocore: LazyAiobotocore,
        direct: ServiceCaller,
        name: str,
        arn: str | None,
        check_scheme: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        self._check_scheme = check_scheme
        self._aiobotocore = aiobotocore
        self._direct = direct
        self._stream = {"StreamARN": arn} if arn else {"StreamName": name}
        self._skew = 0.0
        self._has_responded = False

    def service_time(self) -> float:
        """Return the service's time, by the `Date` of its last response: seconds since the epoch, never ahead."""
        return time.time() + self._skew

    async def describe_stream(self) -> StreamDescription:
        """Describe the stream (AWS: DescribeStreamSummary)."""
        response = await self._call_about_stream("describe_stream_summary")
        with _understood("DescribeStreamSummary"):
            summary = response["StreamDescriptionSummary"]
            return StreamDescription(
                summary["StreamName"],
                summary["StreamARN"],
                summary["StreamStatus"],
                summary["RetentionPeriodHours"],
                summary.get("KeyId"),
                created_at=_seconds(summary.get("StreamCreationTimestamp")),
                max_record_bytes=(summary.get("MaxRecordSizeInKiB") or 1024) * 1024,
                mode=(summary.get("StreamModeDetails") or {}).get("StreamMode"),
                distribution=summary.get("RecordDistributionStrategy") or "USER_PARTITION_KEY",
                queues=summary.get("QueueCount") or 0,
            )

    async def list_shards(self) -> Sequence[Shard]:
        """List all shards (AWS: ListShards)."""
        return await self._list_shards()

    async def _list_shards(self, **options: object) -> Sequence[Shard]:
        """List shards, all pages. A NextToken must not be sent with a stream or a filter."""
        response = await self._call_about_stream("list_shards", **options)
        shards: list[Shard] = []
        for _ in range(MAX_PAGES):
            with _understood("ListShards"):
                shards += [_shard(item) for item in response.get("Shards") or ()]
                token = response.get("NextToken")
            if not token:
                return shards
            response = await self._call("list_shards", NextToken=token)
        raise _endless("ListShards")

    async def _call_about_stream(self, operation: str, **options: object) -> Mapping[str, Any]:
        """Call; say what to do if there is no such stream, in the same words: a start makes two calls at once."""
        try:
            return await self._call(operation, **self._stream, **options)
        except ResourceNotFoundError as error:
            raise ResourceNotFoundError(
                error.code,
                f"{error.message.rstrip('.')}; check its name, the region ({self._aiobotocore.region}) and whose "
                "credentials these are, or create the stream",
                status=error.status,
            ) from error

    async def shards_open_at(self, timestamp: float) -> frozenset[str]:
        """List the shards that were open at a time (AWS: ListShards, ShardFilter AT_TIMESTAMP)."""
        options = {"ShardFilter": {"Type": "AT_TIMESTAMP", "Timestamp": timestamp}}
        return frozenset(shard.shard_id for shard in await self._list_shards(**options))

    async def behind_latest(self, shard_id: str, position: Position) -> int:
        """Return how far a position is behind the tip of its shard, in milliseconds (AWS: GetRecords)."""
        iterator = await self.get_shard_iterator(shard_id, position)
        return (await self.get_records(iterator, 1)).millis_behind_latest

    async def get_shard_iterator(self, shard_id: str, position: Position) -> str:
        """Return an iterator at a position of a shard (AWS: GetShardIterator)."""
        start = {"StartingSequenceNumber": position.sequence_number, "Timestamp": position.timestamp}
        options = {name: value for name, value in start.items() if value is not None}
        response = await self._call(
            "get_shard_iterator", **self._stream, ShardId=shard_id, ShardIteratorType=position.type.value, **options
        )
        if not (iterator := response.get("ShardIterator")):  # AWS's model does not promise one
            raise InternalFailureError("InternalFailure", "the response to GetShardIterator has no ShardIterator")
        return str(iterator)

    async def get_records(self, iterator: str, limit: int) -> ShardRead:
        """Read records of a shard (AWS: GetRecords)."""
        response = await self._call("get_records", ShardIterator=iterator, Limit=limit)
        with _understood("GetRecords"):
            return ShardRead(
                tuple(_record(item) for item in response["Records"]),
                response.get("NextShardIterator") or None,
                int(response.get("MillisBehindLatest") or 0),
                tuple(_child(item) for item in response.get("ChildShards") or ()),
            )

    async def list_consumers(self, stream_arn: str) -> Sequence[FanOutConsumer]:
        """List the stream's consumers, all pages (AWS: ListStreamConsumers)."""
        consumers: list[FanOutConsumer] = []
        page: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            response = await self._call("list_stream_consumers", StreamARN=stream_arn, **page)
            with _understood("ListStreamConsumers"):
                consumers += [_consumer(item) for item in response.get("Consumers") or ()]
                token = response.get("NextToken")
            if not token:
                return consumers
            page = {"NextToken": token}
        raise _endless("ListStreamConsumers")

    async def describe_consumer(self, stream_arn: str, name: str) -> FanOutConsumer:
        """Describe a consumer by its name (AWS: DescribeStreamConsumer)."""
        response = await self._call("describe_stream_consumer", StreamARN=stream_arn, ConsumerName=name)
        with _understood("DescribeStreamConsumer"):
            return _consumer(response["ConsumerDescription"])

    async def register_consumer(
        self, stream_arn: str, name: str, tags: Mapping[str, str] | None = None
    ) -> FanOutConsumer:
        """Register a consumer, with these tags (AWS: RegisterStreamConsumer)."""
        options = {"Tags": dict(tags)} if tags else {}
        response = await self._call("register_stream_consumer", StreamARN=stream_arn, ConsumerName=name, **options)
        with _understood("RegisterStreamConsumer"):
            return _consumer(response["Consumer"])

    async def deregister_consumer(self, consumer_arn: str) -> None:
        """Deregister a consumer (AWS: DeregisterStreamConsumer)."""
        await self._call("deregister_stream_consumer", ConsumerARN=consumer_arn)

    async def describe_limits(self) -> AccountLimits:
        """Describe the account's limits (AWS: DescribeLimits)."""
        response = await self._call("describe_limits")
        names = ("OpenShardCount", "ShardLimit", "OnDemandStreamCount", "OnDemandStreamCountLimit")
        return AccountLimits(*(int(response[name]) for name in names))

    async def has_advantage(self) -> bool:
        """Return whether the account has On-demand Advantage (AWS: DescribeAccountSettings)."""
        commitment = (await self._call("describe_account_settings")).get("MinimumThroughputBillingCommitment") or {}
        return str(commitment.get("Status", "")).startswith("ENABLED")

    async def knows_dry_run(self, shard_id: str) -> bool:
        """Return whether the service knows DryRun (AWS: GetShardIterator)."""
        kind = PositionType.TRIM_HORIZON.value
        return await self._dry_run("get_shard_iterator", **self._stream, ShardId=shard_id, ShardIteratorType=kind)

    async def try_to_read(self, shard_id: str) -> None:
        """Ask whether GetRecords would be accepted, with DryRun."""
        iterator = await self.get_shard_iterator(shard_id, Position.trim_horizon())
        await self._dry_run("get_records", ShardIterator=iterator)

    async def try_to_subscribe(self, consumer_arn: str, shard_id: str) -> None:
        """Ask whether a subscription would be accepted, with DryRun (AWS: SubscribeToShard)."""
        start = {"Type": PositionType.LATEST.value}
        await self._dry_run("subscribe_to_shard", ConsumerARN=consumer_arn, ShardId=shard_id, StartingPosition=start)

    async def _dry_run(self, operation: str, **arguments: object) -> bool:
        """Return whether the service has only checked the request; False: it has carried it out."""
        try:
            await self._call(operation, **arguments, DryRun=True)
        except ServiceError as error:
            if error.code != DRY_RUN_SUCCEEDED:
                raise
            return True
        return False

    async def _call(self, operation: str, **arguments: object) -> Mapping[str, Any]:
        failure: EfoError | None = None
        if operation in DIRECT_READS:
            try:
                found, headers = await self._direct.read(DIRECT_READS[operation], arguments)
            except (TransportError, ProtocolError, ServiceError) as error:
                if _is_final(error):
                    raise
                if isinstance(error, TransportError) and not self._has_responded:
                    await self._check_scheme()
                failure = error  # repeated below, with botocore's retries and explanations
            else:
                self._responded(headers)
                return found
        try:
            with translated(has_responded=self._has_responded):
                response = await self._aiobotocore.call(operation, **arguments)
        except CredentialsError:
            raise
        except TransportError as error:
            # efo's own connection knows at which step it failed, unless it only ran out of time.
            if isinstance(failure, TransportError) and not isinstance(failure, SilenceError):
                raise failure from error
            raise
        if (reason := wrong_content(response)) is not None:
            kind = TransportError if self._has_responded else WrongEndpointError
            raise kind(f"Kinesis cannot be reached: {reason}")
        self._responded(response["ResponseMetadata"]["HTTPHeaders"])
        return response

    def _responded(self, headers: Mapping[str, str]) -> None:
        self._has_responded = True
        with suppress(ValueError):  # a malformed date is ignored
            self._skew = parsedate_to_datetime(headers.get("date", "")).timestamp() - time.time()


def _is_final(error: EfoError) -> bool:
    """Return whether botocore would not get further: the error is an answer, of a wrong setting, or of credentials."""
    if isinstance(error, NotHttp2Error):
        return not error.speaks_http1
    return isinstance(error, CredentialsError | ResourceNotFoundError | WrongEndpointError)


@contextmanager
def _understood(operation: str) -> Iterator[None]:
    """Translate what goes wrong with an answer that is not AWS's: it lacks a member, or has one of another type."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"the response to {operation} is not AWS's ({type(error).__name__})") from None


def _endless(operation: str) -> ProtocolError:
    return ProtocolError(f"the response to {operation} has more than {MAX_PAGES} pages")


def _shard(item: Mapping[str, Any]) -> Shard:
    numbers = item["SequenceNumberRange"]
    parents = [item[name] for name in ("ParentShardId", "AdjacentParentShardId") if item.get(name)]
    if not all(map(is_shard_id, (item["ShardId"], *parents))):
        raise ProtocolError("the response to ListShards has the id of a shard, or of its parent, that is none")
    return Shard(
        shard_id=item["ShardId"],
        hash_key_range=_hash_key_range(item),
        starting_sequence_number=numbers["StartingSequenceNumber"],
        ending_sequence_number=numbers.get("EndingSequenceNumber"),
        parent_shard_id=item.get("ParentShardId"),
        adjacent_parent_shard_id=item.get("AdjacentParentShardId"),
    )


def _hash_key_range(item: Mapping[str, Any]) -> HashKeyRange:
    keys = item["HashKeyRange"]
    return HashKeyRange(keys["StartingHashKey"], keys["EndingHashKey"])


def _child(item: Mapping[str, Any]) -> ChildShard:
    return ChildShard(item["ShardId"], tuple(item["ParentShards"]), _hash_key_range(item))


def _record(item: Mapping[str, Any]) -> Record:
    arrived = item.get("ApproximateArrivalTimestamp")  # a datetime: botocore has parsed it
    return Record(
        sequence_number=item["SequenceNumber"],
        approximate_arrival_timestamp=0.0 if arrived is None else arrived.timestamp(),
        data=item["Data"],
        partition_key=item.get("PartitionKey"),
        encryption_type=item.get("EncryptionType"),
    )


def _consumer(item: Mapping[str, Any]) -> FanOutConsumer:
    return FanOutConsumer(item["ConsumerName"], item["ConsumerARN"], item["ConsumerStatus"])


def _seconds(time: object) -> float | None:
    """Return a time in seconds since the epoch, None if it is none.

    AWS sends a number, of which botocore makes a datetime. Other servers send text too.
    """
    with suppress(ValueError, OverflowError):
        if isinstance(time, str):
            time = datetime.fromisoformat(time)
        if isinstance(time, datetime):
            return time.timestamp()
        if isinstance(time, int | float):
            return datetime.fromtimestamp(time, UTC).timestamp()
    return None


class LazyAiobotocore:
    """Calls of the control plane, through aiobotocore. Made by `open_aiobotocore`.

    `source`: the credentials. `clock`: the service's. `where`: with the region and the URL that
    were found.
    """

    def __init__(
        self,
        stack: AsyncExitStack,
        source: CredentialSource,
        clock: ServiceClock,
        where: StreamLocation,
    ) -> None:
        self._stack = stack
        self._source = source
        self._clock = clock
        self._where = where
        self.region = where["region"]
        self._making = trio.Lock()
        self._client: Any = None

    async def call(self, operation: str, **arguments: object) -> Mapping[str, Any]:
        """Call an operation by botocore's name for it, with botocore's retries.

        Raises botocore's errors, ConfigurationError without credentials, and CredentialsError.
        """
        async with self._making:
            if self._client is None:
                # In a thread, because it takes long: shards may be read at the same time.
                aio = await trio.to_thread.run_sync(import_module, "efo.kinesis.aws.aio")
                client = aio.open_client(self._source, self._clock, self._where)
                self._client = await self._stack.enter_async_context(client)
        response: Mapping[str, Any] = await getattr(self._client, operation)(**arguments)
        return response


@asynccontextmanager
async def open_aiobotocore(
    source: CredentialSource, clock: ServiceClock, where: StreamLocation
) -> AsyncIterator[LazyAiobotocore]:
    """Yield a LazyAiobotocore; close what it made at the end, within 2 s."""
    stack = AsyncExitStack()
    try:
        yield LazyAiobotocore(stack, source, clock, where)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
            await stack.aclose()
