"""The tree of errors that efo raises.

Two class-level facts let callers decide without knowing each class: `retryable` (the same call may succeed
later, unchanged) and `error_type` (a short, low-cardinality name, the value of the OpenTelemetry attribute
`error.type`). Foreign exceptions (h2, ssl, botocore, sqlite3) are translated to these at one seam per
dependency and never travel further.
"""

from __future__ import annotations

from typing import ClassVar


class EfoError(Exception):
    """Base of everything that efo raises on purpose."""

    retryable: ClassVar[bool] = False
    error_type: ClassVar[str] = "efo"


class ConfigurationError(EfoError):
    """A setting is wrong: the message says which, where and what to write instead."""

    error_type = "configuration"


# --- bytes from the wire -------------------------------------------------------------------------------


class ProtocolError(EfoError):
    """The peer sent something that the protocol does not allow. The subscription is opened again."""

    retryable = True
    error_type = "protocol"


class ChecksumError(ProtocolError):
    """A CRC of an event-stream frame does not match: the bytes were damaged on their way."""

    error_type = "checksum"


class FrameError(ProtocolError):
    """An event-stream frame is malformed: impossible lengths, or headers that do not parse."""

    error_type = "frame"


class EventError(ProtocolError):
    """A frame is sound but its content is not a SubscribeToShard event (rule R2 included)."""

    error_type = "event"


class OrderError(ProtocolError):
    """Records came after later ones of their shard: these are read already, so the order is lost.

    Subscribing again would pass over them. The message says which records they are.
    """

    retryable = False
    error_type = "order"


# --- the connection ------------------------------------------------------------------------------------


class TransportError(EfoError):
    """The connection could not be made, or broke."""

    retryable = True
    error_type = "transport"


class NotHttp2Error(TransportError):
    """The endpoint answered, but does not speak HTTP/2: SubscribeToShard needs it."""

    retryable = False
    error_type = "not_http2"


class StreamResetError(TransportError):
    """The peer reset one HTTP/2 stream (RST_STREAM); its neighbours go on."""

    error_type = "reset"

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class GoAwayError(TransportError):
    """The peer announced GOAWAY: this connection takes no new stream."""

    error_type = "goaway"


class TlsError(TransportError):
    """The endpoint's certificate is not trusted, or TLS could not be agreed on."""

    retryable = False
    error_type = "tls"


class SilenceError(TransportError):
    """Nothing arrived for longer than the liveness deadline while efo was ready to read (rule R8)."""

    error_type = "silence"


# --- what the service says -----------------------------------------------------------------------------


class ServiceError(EfoError):
    """Kinesis refused a call, or ended a subscription, with an error of its own.

    `code` is AWS's name of the error, for example `ResourceInUseException`.
    """

    error_type = "service"

    def __init__(self, code: str, message: str, *, status: int | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.status = status


class ResourceInUseError(ServiceError):
    """Within 5 s of the last success, or the consumer is not ACTIVE, or another call took over (rule R6)."""

    retryable = True
    error_type = "ResourceInUseException"


class ResourceNotFoundError(ServiceError):
    """The stream, shard or consumer does not exist: DescribeStreamConsumer tells which (rule R13)."""

    error_type = "ResourceNotFoundException"


class ThrottledError(ServiceError):
    """Too many calls: LimitExceeded, throughput or KMS throttling. Retried with backoff."""

    retryable = True
    error_type = "throttled"


class InternalFailureError(ServiceError):
    """The service failed inside (HTTP 5xx or InternalFailureException). Retried with backoff."""

    retryable = True
    error_type = "InternalFailureException"


class AccessDeniedError(ServiceError):
    """The credentials may not do this: the message names the missing permission where AWS tells it."""

    error_type = "AccessDeniedException"


class ExpiredCredentialsError(ServiceError):
    """The credentials ran out between signing and arrival. The next call is signed with fresh ones."""

    retryable = True
    error_type = "ExpiredTokenException"


class KmsError(ServiceError):
    """The stream's key is disabled, missing or denied: the shard is parked until an operator acts."""

    error_type = "kms"


class ShardGoneError(EfoError):
    """The shard exists no longer: all that it had has passed its retention, or the stream was made anew."""

    error_type = "shard_gone"


class ConsumerReplacedError(EfoError):
    """The fan-out consumer had disappeared and was registered again, with a new ARN (rule R13)."""

    retryable = True
    error_type = "consumer_replaced"


class NotVisibleError(EfoError):
    """The service does not find what exists: it was made just now, or the call named what was replaced since."""

    retryable = True
    error_type = "not_visible"


# --- reading a shard -----------------------------------------------------------------------------------


class IsolateShardError(EfoError):
    """A reader wants its shard stopped and the others to go on: its lease is released (rule R11).

    `cooldown`: seconds before this worker may take the shard again; None: `ConsumerSettings.shard_cooldown`.
    """

    error_type = "stop_shard"

    def __init__(self, message: str, *, cooldown: float | None = None) -> None:
        super().__init__(message)
        self.cooldown = cooldown


class ShardNotReadError(EfoError):
    """This worker is not reading the shard (any more), so it cannot be paused, resumed or sought."""

    error_type = "shard_not_read"


# --- leases --------------------------------------------------------------------------------------------


class LeaseError(EfoError):
    """Base of the lease store's errors."""

    error_type = "lease"


class LeaseLostError(LeaseError):
    """Another worker holds the lease now, or its row is gone: stop working on the shard."""

    error_type = "lease_lost"


class LeaseStoreUnavailableError(LeaseError):
    """The lease store cannot be reached or read."""

    retryable = True
    error_type = "lease_store_unavailable"


class LeaseStoreCorruptError(LeaseError):
    """What the lease store holds cannot be understood: the message names file or row."""

    error_type = "lease_store_corrupt"
