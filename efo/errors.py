"""The errors that efo raises.

Two class attributes let callers decide without knowing each class. `retryable`: the same call may succeed later,
unchanged. `error_type`: a short name of low cardinality, the value of OpenTelemetry's attribute `error.type`.
Exceptions of other libraries (h2, ssl, botocore, sqlite3) are translated to these in one place per library.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import isfinite
from typing import ClassVar, Final, TypeVar

E = TypeVar("E", bound=BaseException)

_MAX_NAME: Final = 128


def error_type_of(error: BaseException) -> str:
    """Return the `error_type` of an error; of an exception of other code, its class name. At most 128 characters."""
    return str(getattr(error, "error_type", type(error).__name__))[:_MAX_NAME]


def class_name_of(error: BaseException) -> str:
    """Return the name of an exception's class, at most 128 characters: it is logged, and may be anything."""
    return type(error).__name__[:_MAX_NAME]


def without_tracebacks(error: E) -> E:
    """Return an error without the tracebacks of it and of its causes, for an error that is kept as a value.

    They would keep the frames in which it was raised, with all buffers that these refer to. A frame that refers to the
    error makes a cycle with it, which only a garbage collection frees, maybe hours later. And an error that many tasks
    raise would gather the frames of them all.
    """
    chain: list[BaseException | None] = [error]
    cleared = set()
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in cleared:
            cleared.add(id(link))
            link.__traceback__ = None
            chain += [link.__cause__, link.__context__]
    return error


class EfoError(Exception):
    """Base class of all errors that efo raises on purpose."""

    retryable: ClassVar[bool] = False
    error_type: ClassVar[str] = "efo"


# --- mistakes of the caller ------------------------------------------------------------------------------


class ConfigurationError(EfoError):
    """A setting or argument is wrong. The message says which one, where it is, and what to use instead."""

    error_type = "configuration"


class MissingExtraError(ConfigurationError):
    """An optional package is not installed. The message names the extra of efo that installs it."""

    error_type = "missing_extra"


class StreamRecreatedError(ConfigurationError):
    """Leases, or positions of a sink, belong to a former stream of this name: nothing is read past it (rule R15).

    The message says how efo knows, and how to read the present stream.
    """

    error_type = "stream_recreated"


class HandlerError(ConfigurationError):
    """A handler does not fit efo's interface: it cannot be called, returns the wrong value, or misuses a batch.

    No failure policy applies: retrying or skipping would hide the mistake and lose records. The consumer stops.
    """

    error_type = "handler"


class InvalidValueError(EfoError, ValueError):
    """A value that was read from a file or a store is not valid. The message says why, in efo's own words."""

    error_type = "invalid_value"


# --- data of records -------------------------------------------------------------------------------------


class DeserializationError(EfoError):
    """A record's data is not what its deserializer expects. The message names the record and the reason, never data.

    The same data fails each time, so the failure policy splits the batch, or decides about the record, without retries.
    `sequence_number`, `sub_sequence_number`: the record. `reason`: what is wrong with its data. The exception of the
    decoding library, which may contain data, is `__context__`; a traceback does not show it.
    """

    error_type = "deserialization"

    def __init__(self, reason: str, *, sequence_number: str, sub_sequence_number: int = 0) -> None:
        number = f"{sequence_number}/{sub_sequence_number}" if sub_sequence_number else sequence_number
        super().__init__(f"record {number}: {reason}")
        self.reason = reason
        self.sequence_number = sequence_number
        self.sub_sequence_number = sub_sequence_number


class RecordTooOldError(EfoError):
    """A record is older than `max_record_age_seconds`. It is not raised: `on_error` decides what becomes of it."""

    error_type = "record_too_old"


class SchemaNotLoadedError(EfoError):
    """A record names a schema that is not loaded yet: `await error.load()`, then call the deserializer again.

    `efo.deserialize` does this by itself. Code that cannot await passes the schemas as a mapping instead.
    """

    retryable = True
    error_type = "schema_not_loaded"

    def __init__(self, message: str, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__(message)
        self.load = load


# --- bytes from the wire ---------------------------------------------------------------------------------


class ProtocolError(EfoError):
    """The peer violated the protocol. The shard is subscribed again."""

    retryable = True
    error_type = "protocol"


class ChecksumError(ProtocolError):
    """A CRC of an event-stream message does not match: the bytes were damaged in transit."""

    error_type = "checksum"


class FrameError(ProtocolError):
    """An event-stream message is malformed: impossible lengths, or headers that do not parse."""

    error_type = "frame"


class EventError(ProtocolError):
    """A message is intact, but its content is not a valid SubscribeToShardEvent (rule R2 included)."""

    error_type = "event"


class PositionRefusedError(EfoError):
    """The position of a shard in an application's database is not the one that a transaction wanted to move."""


class OrderError(ProtocolError):
    """Records arrived after later records of their shard, which were already delivered: the order is lost.

    A new subscription would skip them. The message names the records.
    """

    retryable = False
    error_type = "order"


# --- the connection --------------------------------------------------------------------------------------


class TransportError(EfoError):
    """The connection could not be made, or broke."""

    retryable = True
    error_type = "transport"


class NameResolutionError(TransportError):
    """The name of the endpoint has no address."""

    error_type = "dns"


class ConnectError(TransportError):
    """No address of the endpoint can be reached: there is no route, or the connection is refused or not answered."""

    error_type = "connect"


class WrongEndpointError(TransportError):
    """What answers is not the endpoint that the settings mean: another server, or one that is not trusted.

    Only a first connection raises it. After that it is an outage: a TransportError that is retried.
    """

    retryable = False
    error_type = "wrong_endpoint"


class NotHttp2Error(WrongEndpointError):
    """The endpoint does not speak HTTP/2, which SubscribeToShard requires.

    `speaks_http1`: whether it may speak HTTP/1.1 nevertheless; not if it has TLS for http://, or none for https://.
    """

    error_type = "not_http2"

    def __init__(self, message: str, *, speaks_http1: bool = True) -> None:
        super().__init__(message)
        self.speaks_http1 = speaks_http1


class StreamResetError(TransportError):
    """The peer reset one HTTP/2 stream (RST_STREAM). Other streams are not affected. `code`: the HTTP/2 error code."""

    error_type = "reset"

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class GoAwayError(TransportError):
    """The peer sent GOAWAY: the connection accepts no new streams."""

    error_type = "goaway"


class TlsError(WrongEndpointError):
    """The endpoint's certificate is not trusted."""

    error_type = "tls"


class ProxyError(WrongEndpointError):
    """The HTTP proxy refuses to connect to the endpoint (403, 407), or what answers is no HTTP proxy.

    A proxy that is down, or that cannot reach the endpoint (502, 503, 504), is a TransportError, which is retried.
    """

    error_type = "proxy"


class CredentialsError(TransportError):
    """The AWS credentials cannot be obtained or refreshed now, though they could be before, or nothing refuses them.

    The message names the provider of the chain, what failed, and what to do. It is tried again once a second.
    """

    error_type = "credentials"


class FaultyHostError(TransportError):
    """A connection failed as a wrong setting would let it fail, but others have worked: one host is faulty, or was.

    `error_type`: that of the error, a WrongEndpointError, which is not retryable before the first connection.
    """

    def __init__(self, error: TransportError) -> None:
        super().__init__(str(error))
        self.error_type: str = error.error_type  # type: ignore[misc]  # no other error has a type of its own


class SilenceError(TransportError):
    """Nothing arrived within the silence timeout, although efo was ready to read (rule R8)."""

    error_type = "silence"


# --- errors of the service -------------------------------------------------------------------------------


class ServiceError(EfoError):
    """Kinesis rejected a call, or ended a subscription, with an error.

    `code`: the error's name in the AWS API, for example `ResourceInUseException`; `HTTP` and the status, for example
    `HTTP502`, if the response names none. `message`: the service's text. `status`: the HTTP status; None for an error
    inside an event stream.
    """

    error_type = "service"

    def __init__(self, code: str, message: str, *, status: int | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.status = status


class ResourceInUseError(ServiceError):
    """Less than 5 s passed since the last success, the consumer is not ACTIVE, or another call took over (rule R6)."""

    retryable = True
    error_type = "ResourceInUseException"


class ResourceNotFoundError(ServiceError):
    """The stream, shard or consumer does not exist. DescribeStreamConsumer shows which (rule R13)."""

    error_type = "ResourceNotFoundException"


class ThrottledError(ServiceError):
    """Too many calls: LimitExceeded, throughput or KMS throttling. Retried with backoff."""

    retryable = True
    error_type = "throttled"


class ConsumerLimitError(ThrottledError):
    """The fan-out consumer cannot be registered: the stream has as many as it may, or too many are made at once."""

    error_type = "consumer_limit"


class ExpiredIteratorError(ServiceError):
    """The shard iterator of a call of GetRecords is older than 5 minutes. The next one is at the same place."""

    retryable = True
    error_type = "expired_iterator"


class InternalFailureError(ServiceError):
    """The service failed internally (HTTP 5xx or InternalFailureException). Retried with backoff."""

    retryable = True
    error_type = "InternalFailureException"


class AccessDeniedError(ServiceError):
    """The credentials do not permit the call. The message names the missing permission if AWS does."""

    error_type = "AccessDeniedException"


class RejectedCredentialsError(AccessDeniedError):
    """The service does not know the credentials, or the signature is not theirs: a deleted key, a wrong secret."""

    error_type = "credentials_rejected"


class ExpiredCredentialsError(ServiceError):
    """The service says that the credentials have expired. The next call is signed with new ones."""

    retryable = True
    error_type = "ExpiredTokenException"


class ClockSkewError(ServiceError):
    """The service refuses a signature for its time: the clock of this host is wrong. The next call is corrected.

    `service_time`: the service's time when it refused, in seconds since the epoch; None if it does not say.
    """

    retryable = True
    error_type = "clock_skew"

    def __init__(
        self, code: str, message: str, *, status: int | None = None, service_time: float | None = None
    ) -> None:
        super().__init__(code, message, status=status)
        self.service_time = service_time


class KmsError(ServiceError):
    """The stream's KMS key is disabled, missing or denied. An operator must act."""

    error_type = "kms"


# --- shards and the fan-out consumer ---------------------------------------------------------------------


class ShardGoneError(EfoError):
    """The shard no longer exists: its retention period has passed, or the stream was created again."""

    error_type = "shard_gone"


class ConsumerNotActiveError(EfoError):
    """The fan-out consumer did not become ACTIVE in time."""

    error_type = "consumer_not_active"


class ConsumerNotFoundError(ConfigurationError):
    """The fan-out consumer whose ARN is given does not exist, or was replaced by one with another ARN.

    efo registers none in its place (rule R13): its owner has the ARN of the present one.
    """

    error_type = "consumer_not_found"


class ConsumerReplacedError(EfoError):
    """The fan-out consumer had disappeared and was registered again, with a new ARN (rule R13)."""

    retryable = True
    error_type = "consumer_replaced"


class FanOutRefusedError(EfoError):
    """The fan-out consumer disappeared and cannot be registered again; `read_mode` permits polling instead.

    `reason`: why not: ConsumerLimitError, ConsumerNotFoundError or ConsumerNotActiveError.
    """

    error_type = "fan_out_refused"

    def __init__(self, reason: EfoError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class NotVisibleError(EfoError):
    """The service does not find a resource that exists: it is new, or the call named its predecessor."""

    retryable = True
    error_type = "not_visible"


class IsolateShardError(EfoError):
    """Raised by a reader or handler to stop its shard and release the lease, while other shards go on (rule R11).

    `cooldown`: seconds before this worker may read the shard again; None: `ConsumerSettings.shard_cooldown_seconds`.
    Raises ConfigurationError for anything else. `record`: the record that fails, as the text of its
    checkpoint; for `Consumer.status`.
    """

    error_type = "isolate_shard"

    def __init__(
        self,
        message: str = "the application isolated the shard",
        cooldown: float | None = None,
        *,
        record: str | None = None,
    ) -> None:
        super().__init__(message)
        self.record = record
        if cooldown is not None and not _is_seconds(cooldown):
            raise ConfigurationError(f"cooldown={cooldown!r}: expected 0 or more seconds, or None")
        self.cooldown = cooldown


class ShardNotReadError(EfoError):
    """This worker does not read the shard now, so that it cannot pause, resume or seek it."""

    error_type = "shard_not_read"


# --- the producer ------------------------------------------------------------------------------------------


class DeliveryError(EfoError):
    """A record that was put was given up. Its cause is the last error of the service or the connection, if any.

    `attempts`: the number of requests with it. `maybe_stored`: whether it may be in the stream nevertheless: a request
    failed without a response, or only a part of its aggregate was for the shard in which it arrived.
    """

    error_type = "delivery"

    def __init__(self, message: str, *, attempts: int = 0, maybe_stored: bool = False) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.maybe_stored = maybe_stored


class ProducerClosedError(EfoError):
    """The producer was closed before the record was taken, or before it was sent."""

    error_type = "producer_closed"


# --- leases ----------------------------------------------------------------------------------------------


class LeaseError(EfoError):
    """Base class of the errors of lease stores."""

    error_type = "lease"


class LeaseLostError(LeaseError):
    """Another worker holds the lease, or its row was deleted: stop reading the shard."""

    error_type = "lease_lost"


class LeaseStoreUnavailableError(LeaseError):
    """The lease store cannot be reached or read."""

    retryable = True
    error_type = "lease_store_unavailable"


class LeaseStoreLockedError(LeaseStoreUnavailableError):
    """Another program holds the lock of the lease store, for longer than a write takes. The message names the file."""

    error_type = "lease_store_locked"


class LeaseStoreFullError(LeaseStoreUnavailableError):
    """The lease store has no space for a write. The message names the file or the server."""

    error_type = "lease_store_full"


class LeaseStoreCorruptError(LeaseError):
    """The content of the lease store cannot be understood. The message names the file or row."""

    error_type = "lease_store_corrupt"


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0
