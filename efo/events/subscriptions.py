"""What happens to connections, to the fan-out consumer, to subscriptions, and to polling: how events arrive."""

from __future__ import annotations

from typing import Literal

import msgspec

from efo.health import Readings

EndReason = Literal[
    "expired", "renewed", "shard_end", "reset", "goaway", "transport", "throttled", "protocol", "service",
    "silence", "lease_lost", "shutdown", "idle", "seek",
]  # fmt: skip
"""Why a subscription ended; the value of the attribute `efo.subscription.end_reason`."""

PollOperation = Literal["GetRecords", "GetShardIterator"]
"""A call that polling makes."""


class WorkerStarted(msgspec.Struct, frozen=True):
    """A worker with this id starts: all later events are of this worker."""

    worker_id: str


class ConsumerOpened(msgspec.Struct, frozen=True):
    """A consumer was opened. `readings`: what it knows of its shards, at any time."""

    readings: Readings


class ConsumerReady(msgspec.Struct, frozen=True):
    """The fan-out consumer is ACTIVE. `registered`: whether this worker has just registered it."""

    name: str
    arn: str
    registered: bool


class ConsumerDeregistered(msgspec.Struct, frozen=True):
    """The fan-out consumer of an ephemeral worker was deregistered at its end. `error_type`: why not; None if it was.

    One that stays is billed.
    """

    name: str
    error_type: str | None = None
    detail: str = ""


class SubscribeAttempted(msgspec.Struct, frozen=True):
    """A call of SubscribeToShard got its response. `error_type` is None if it was accepted.

    `waited`: seconds spent waiting for the subscribe budget (rule R6). `duration`: seconds that the call took.
    `is_final`: whether the call is not repeated: what reads the shard gets the error.
    """

    shard_id: str
    waited: float
    duration: float
    error_type: str | None
    detail: str = ""
    is_final: bool = False


class SubscriptionEnded(msgspec.Struct, frozen=True):
    """A subscription ended that was accepted `age` seconds ago.

    `error_type`: of the error that ended it, if one did. `is_final`: as in SubscribeAttempted.
    """

    shard_id: str
    age: float
    reason: EndReason
    detail: str = ""
    error_type: str | None = None
    is_final: bool = False


class EventReceived(msgspec.Struct, frozen=True):
    """An event arrived. `wire_bytes`: its length with framing. `interval`: seconds since the shard's previous event."""

    shard_id: str
    records: int
    wire_bytes: int
    millis_behind_latest: int
    interval: float | None


class PollAttempted(msgspec.Struct, frozen=True):
    """A call of GetRecords or GetShardIterator got its response. `error_type` is None if it was accepted.

    `duration`: seconds that the call took, with all of the response. `is_final`: as in SubscribeAttempted.
    """

    shard_id: str
    operation: PollOperation
    duration: float
    error_type: str | None = None
    detail: str = ""
    is_final: bool = False


class ReadModeChanged(msgspec.Struct, frozen=True):
    """A consumer with `read_mode` "auto" reads its shards in another way from now on.

    `error_type`, `detail`: why enhanced fan-out is not possible, None and empty if it is again. `retry_after`: seconds
    until it is tried again.
    """

    mode: Literal["fanout", "polling"]
    error_type: str | None = None
    detail: str = ""
    retry_after: float | None = None


class DeliveryBlocked(msgspec.Struct, frozen=True):
    """An event waited `duration` seconds after its arrival until the reader took it: back-pressure (rule R9).

    Reported after the reader took the event, and only if the wait was long enough to matter.
    """

    shard_id: str
    duration: float


class ConnectionOpened(msgspec.Struct, frozen=True):
    """An HTTP/2 connection was opened."""

    address: str


class ConnectionClosed(msgspec.Struct, frozen=True):
    """An HTTP/2 connection was closed. `error_type`: the `error_type` of the error that closed it, if there was one."""

    address: str
    error_type: str | None = None
    detail: str = ""


class StreamReset(msgspec.Struct, frozen=True):
    """The peer reset an HTTP/2 stream. `error_code`: the name of the HTTP/2 error code, for example CANCEL."""

    address: str
    error_code: str
