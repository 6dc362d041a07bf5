"""Checks of the stream: its permissions, state and encryption, and the room for efo's fan-out consumer.

What is needed depends on the read mode. They call what reads. A subscription is asked for with DryRun. The two calls
that register and deregister, for which AWS has no DryRun, are named, and not made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Final

import trio

from efo.errors import (
    AccessDeniedError,
    ClockSkewError,
    EfoError,
    ExpiredCredentialsError,
    KmsError,
    RejectedCredentialsError,
    ResourceInUseError,
    ResourceNotFoundError,
    ServiceError,
    ThrottledError,
)
from efo.kinesis.client import ControlPlane, KinesisClient
from efo.model import AccountLimits, FanOutConsumer, Shard, StreamDescription
from efo.settings import TRIM_HORIZON, ReadMode
from efo_service.exit_codes import code_of
from efo_service.operations.doctor.running import Check, Outcome, failed, failed_by, not_tested, passed, untested

QUOTA: Final = 20
"""Fan-out consumers and queues of a stream at most (AWS: RegisterStreamConsumer)."""
ADVANTAGE_QUOTA: Final = 50
"""The same for an on-demand stream, if the account has On-demand Advantage."""
DRY_RUN_INTERVAL: Final = 1.1
"""Seconds between two dry runs for a stream: AWS allows one per second."""

_OF_CREDENTIALS: Final[Mapping[type[ServiceError], str]] = {
    ExpiredCredentialsError: "renew the credentials: these have expired",
    RejectedCredentialsError: "use other credentials, or correct them: the service rejects these",
    ClockSkewError: "synchronize this host's clock (NTP)",
}
"""What to do about errors that every call has with these credentials."""
_RETRY: Final = "try again later"
_OF_FAN_OUT: Final = frozenset(
    {
        "kinesis:ListStreamConsumers",
        "kinesis:DescribeStreamConsumer",
        "kinesis:RegisterStreamConsumer",
        "kinesis:SubscribeToShard",
        "kinesis:DeregisterStreamConsumer",
        "fan-out consumer",
    }
)
"""The checks that mean nothing to a service that only polls."""


def kinesis_checks(
    open_client: Callable[[], Awaitable[KinesisClient]],
    consumer: str,
    needs: tuple[str, ...],
    read_mode: ReadMode = "fanout",
) -> list[Check]:
    """Return the checks of the stream, in order.

    `open_client`: returns the client of the stream. `consumer`: the name of efo's own fan-out consumer. `needs`: the
    names of the checks without which no call can succeed. `read_mode`: how shards are read.
    """
    stream = _Stream(open_client, consumer, read_mode)
    checks = [
        Check("signature", stream.signature, _RETRY, needs),
        Check("kinesis:DescribeStreamSummary", stream.describe, _RETRY, ("signature",)),
        Check("stream", stream.state, _RETRY, ("kinesis:DescribeStreamSummary",)),
        Check("kinesis:ListShards", stream.list_shards, _RETRY, ("stream",)),
        Check("kinesis:ListStreamConsumers", stream.list_consumers, _RETRY, ("stream",)),
        Check("kinesis:DescribeStreamConsumer", stream.describe_consumer, _RETRY, ("stream",)),
        Check("kinesis:GetRecords", stream.get_records, _RETRY, ("kinesis:ListShards",)),
        untested("kinesis:RegisterStreamConsumer", "a call registers a consumer; `efo run` needs it"),
        Check(
            "kinesis:SubscribeToShard",
            stream.subscribe,
            _RETRY,
            ("kinesis:ListShards", "kinesis:DescribeStreamConsumer"),
        ),
        untested("kinesis:DeregisterStreamConsumer", "a call ends subscriptions; only `efo consumers` needs it"),
        Check("encryption", stream.encryption, _RETRY, ("stream",)),
        Check("fan-out consumer", stream.quota, _RETRY, ("kinesis:ListStreamConsumers",)),
        Check("account", stream.limits, _RETRY, ("signature",)),
    ]
    return [check for check in checks if read_mode != "polling" or check.name not in _OF_FAN_OUT]


class _Stream:
    """The checks. Each leaves to the next ones what they need: they run only after it has passed."""

    def __init__(self, open_client: Callable[[], Awaitable[KinesisClient]], consumer: str, read_mode: ReadMode) -> None:
        self._open_client = open_client
        self._read_mode: ReadMode = read_mode
        self._name = consumer
        self._description: StreamDescription | EfoError
        self._shards: Sequence[Shard] = ()
        self._consumers: Sequence[FanOutConsumer] = ()
        self._own_arn: str | None = None
        self._dry_running = trio.Lock()
        self._dry_run_at = -inf

    @property
    def _described(self) -> StreamDescription:
        assert isinstance(self._description, StreamDescription)  # noqa: S101 - `describe` has passed
        return self._description

    async def signature(self) -> Outcome:
        """Make the first signed call. Its other errors are left to the next checks."""
        kinesis = await self._open_client()
        try:
            self._description = await kinesis.control_plane.describe_stream()
        except ServiceError as error:
            self._description = error
            return judge_signature(error)
        return passed("the service accepts the credentials")

    async def describe(self) -> Outcome:
        """Look at the result of DescribeStreamSummary."""
        error = self._description if isinstance(self._description, EfoError) else None
        return judge_permission("kinesis:DescribeStreamSummary", "the stream", error)

    async def state(self) -> Outcome:
        """Look at the state of the stream."""
        return judge_stream(self._description)

    async def list_shards(self) -> Outcome:
        """List the shards."""
        kinesis = await self._open_client()
        try:
            self._shards = await kinesis.control_plane.list_shards()
        except ServiceError as error:
            return judge_permission("kinesis:ListShards", self._described.arn, error)
        count = sum(shard.is_open for shard in self._shards)
        return passed(f"allowed; {len(self._shards)} shards, {count} of them open")

    async def list_consumers(self) -> Outcome:
        """List the fan-out consumers."""
        kinesis = await self._open_client()
        try:
            self._consumers = await kinesis.control_plane.list_consumers(self._described.arn)
        except ServiceError as error:
            return judge_permission("kinesis:ListStreamConsumers", self._described.arn, error)
        return passed("allowed")

    async def describe_consumer(self) -> Outcome:
        """Describe efo's own consumer. That it does not exist is an answer too."""
        kinesis = await self._open_client()
        error = None
        try:
            self._own_arn = (await kinesis.control_plane.describe_consumer(self._described.arn, self._name)).arn
        except ServiceError as raised:
            error = raised
        resource = f"{self._described.arn}/consumer/{self._name}:*"
        return judge_permission("kinesis:DescribeStreamConsumer", resource, error)

    async def get_records(self) -> Outcome:
        """Read one record, as `efo shards` does for the lag, and polling for all.

        Where others leave no room for that, a dry run shows at least the permission.
        """
        if (shard := self._open_shard) is None:
            return not_tested("the stream has no open shard")
        control_plane = (await self._open_client()).control_plane
        error: ServiceError | None = None
        try:
            await control_plane.behind_latest(shard.shard_id, TRIM_HORIZON)
        except ThrottledError as throttled:
            error = throttled
            async with self._dry_run():
                if await _would_read(control_plane, shard.shard_id):
                    return passed("allowed, by a dry run: others use all calls that this shard has")
        except ServiceError as raised:
            error = raised
        return judge_get_records(error, self._described, self._read_mode)

    async def subscribe(self) -> Outcome:
        """Ask for a subscription with DryRun. A service that does not know DryRun is not asked."""
        if (shard := self._open_shard) is None:
            return not_tested("the stream has no open shard")
        control_plane = (await self._open_client()).control_plane
        try:
            async with self._dry_run():
                knows = await control_plane.knows_dry_run(shard.shard_id)
        except ServiceError as error:
            return not_tested(
                f"GetShardIterator, which shows whether this service knows DryRun, failed with {error.code}; without"
                " DryRun, a call takes over a shard from who reads it"
            )
        if not knows:
            return not_tested(
                "this service does not know DryRun, and a call takes over a shard from who reads it; `efo run` needs it"
            )
        failure = None
        try:
            async with self._dry_run():
                arn = self._own_arn or f"{self._described.arn}/consumer/{self._name}:1"
                await control_plane.try_to_subscribe(arn, shard.shard_id)
        except ServiceError as error:
            failure = error
        return judge_subscribe(failure, f"{self._described.arn}/consumer/{self._name}:*")

    @property
    def _open_shard(self) -> Shard | None:
        return next((shard for shard in self._shards if shard.is_open), None)

    @asynccontextmanager
    async def _dry_run(self) -> AsyncIterator[None]:
        """Wait until another dry run is allowed."""
        async with self._dry_running:
            await trio.sleep_until(self._dry_run_at + DRY_RUN_INTERVAL)
            try:
                yield
            finally:
                self._dry_run_at = trio.current_time()

    async def encryption(self) -> Outcome:
        """Look at the encryption of the stream."""
        return judge_encryption(self._described.key_id)

    async def quota(self) -> Outcome:
        """Look for efo's own consumer, or for room for it. Queues need room too."""
        stream = self._described
        return judge_consumers(self._consumers, stream.queues, self._name, await self._quota(), self._read_mode)

    async def _quota(self) -> int | None:
        """Return how many consumers and queues the stream may have; None if it may be 20 or 50."""
        if self._described.mode == "PROVISIONED":
            return QUOTA
        if self._described.mode is None:
            return None
        try:
            has_advantage = await (await self._open_client()).control_plane.has_advantage()
        except ServiceError:
            return None
        return ADVANTAGE_QUOTA if has_advantage else QUOTA

    async def limits(self) -> Outcome:
        """Look at the account's limits, which a split or a new stream may meet."""
        kinesis = await self._open_client()
        try:
            return judge_limits(await kinesis.control_plane.describe_limits())
        except ServiceError as error:
            return not_tested(f"DescribeLimits failed with {error.code}; `efo run` does not need it")


async def _would_read(control_plane: ControlPlane, shard_id: str) -> bool:
    try:
        await control_plane.try_to_read(shard_id)
    except ServiceError:
        return False
    return True


# --- what it means: pure ---------------------------------------------------------------------------------------


def judge_signature(error: ServiceError) -> Outcome:
    """Return what the error of the first signed call says about the credentials."""
    for type_, remedy in _OF_CREDENTIALS.items():
        if isinstance(error, type_):
            return failed(str(error), remedy, code_of(error))
    return passed("the service accepts the credentials")


def judge_permission(action: str, resource: str, error: EfoError | None) -> Outcome:
    """Return what the result of a call says about its permission. Without the resource, it was not refused."""
    if error is None:
        return passed("allowed")
    if isinstance(error, ResourceNotFoundError):
        return passed("allowed; nothing of this name exists")
    if isinstance(error, AccessDeniedError):
        return failed(str(error), f"allow {action} on {resource} in the policies of these credentials", code_of(error))
    return failed_by(error, _RETRY)


def judge_stream(description: StreamDescription | EfoError) -> Outcome:
    """Return what the stream's state means."""
    if isinstance(description, EfoError):
        return failed_by(description, "create the stream, or correct [kinesis] stream and region")
    found = f"{description.name} is {description.status}"
    match description.status:
        case "DELETING":
            return failed(found, "create the stream again after its deletion, or choose another [kinesis] stream")
        case "CREATING":
            return failed(found, "wait until it is ACTIVE")
        case _:  # ACTIVE, or UPDATING, which can be read
            return passed(f"{found}, with a retention period of {description.retention_hours:g} hours")


def judge_get_records(
    error: EfoError | None, description: StreamDescription, read_mode: ReadMode = "fanout"
) -> Outcome:
    """Return what the result of GetShardIterator and GetRecords means: `efo shards` and polling call them."""
    if isinstance(error, KmsError):
        key = description.key_id or "the stream's key"
        return failed(str(error), f"enable the key, and allow kms:Decrypt on {key}", code_of(error))
    if isinstance(error, AccessDeniedError) and read_mode != "fanout":
        return failed(
            str(error),
            f"allow kinesis:GetShardIterator and kinesis:GetRecords on {description.arn}: read_mode = {read_mode}",
            code_of(error),
        )
    if isinstance(error, AccessDeniedError):
        return not_tested(
            "denied to these credentials, and `efo run` does not need it: only the lag of `efo shards` does. Allow"
            " kinesis:GetShardIterator and kinesis:GetRecords for it, or use --no-lag"
        )
    if isinstance(error, ThrottledError):
        return not_tested("throttled: others read this shard, and a shard has 5 calls per second for all of them")
    return judge_permission("kinesis:GetRecords", description.arn, error)


def judge_encryption(key_id: str | None) -> Outcome:
    """Return what the stream's encryption means. Only a record that is read shows whether the key may be used."""
    if key_id is None:
        return passed("none")
    if key_id.endswith("alias/aws/kinesis"):
        return passed(f"by the key {key_id} of AWS, which needs no permission")
    return not_tested(f"only reading a record shows whether kms:Decrypt is allowed on the key {key_id}")


def judge_subscribe(error: ServiceError | None, resource: str) -> Outcome:
    """Return what the answer to a dry run of SubscribeToShard means."""
    if isinstance(error, ThrottledError):
        return not_tested("throttled: a stream has one dry run per second for all who ask")
    if isinstance(error, ResourceInUseError):
        return passed("allowed, by a dry run; the consumer is not ACTIVE")
    if error is None:
        return passed("allowed, by a dry run")
    return judge_permission("kinesis:SubscribeToShard", resource, error)


def judge_limits(limits: AccountLimits) -> Outcome:
    """Return what is left of the account's limits. Reading needs none of it."""
    found = (
        f"{limits.open_shards} of {limits.shard_limit} shards, {limits.on_demand_streams} of {limits.on_demand_limit} "
        "on-demand streams"
    )
    full = limits.open_shards >= limits.shard_limit
    return passed(found + "; no shard can be split until the quota is raised" * full)


def judge_consumers(
    consumers: Sequence[FanOutConsumer],
    queues: int,
    own: str,
    limit: int | None,
    read_mode: ReadMode = "fanout",
) -> Outcome:
    """Return whether efo's own consumer exists, or has room. With the read mode "auto", efo can do without.

    `queues`: how many queues the stream has, which count as consumers. `limit`: how many it may have of both; None if
    that is not known. Then it is 50 where more than 20 exist.
    """
    count = len(consumers) + queues
    quota = limit or (QUOTA if count <= QUOTA else ADVANTAGE_QUOTA)
    found = f"{count} of {quota} exist" + f", {queues} of them queues" * (queues > 0)
    status = next((consumer.status for consumer in consumers if consumer.name == own), None)
    match status:
        case "DELETING":
            return failed(f"{found}; {own} is being deleted", "wait until it is gone: `efo run` registers it again")
        case None if count >= quota:
            if read_mode == "auto":
                return passed(f"{found}, and {own} is not among them: `efo run` polls until another is deregistered")
            advantage = f" (with On-demand Advantage there is room for {ADVANTAGE_QUOTA})" * (
                limit is None and quota == QUOTA
            )
            return failed(
                f"{found}{advantage}, and {own} is not among them",
                "deregister consumers that nobody uses: see `efo consumers list` and `efo consumers janitor`",
            )
        case None:
            return passed(f"{found}; {own} is not among them: `efo run` registers it")
        case _:
            return passed(f"{found}; {own} is {status}")
