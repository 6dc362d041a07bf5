"""efo reads Amazon Kinesis Data Streams by enhanced fan-out, and puts records into them, on trio.

    consume         read a stream with a handler: one call
    open_consumer   read the shards of a stream as async iterators of batches, with acks
    consume_streams, open_streams   the same of many streams, which are added and removed while they are read
    open_producer   put records into a stream: batched, retried, within the limits of its shards
    read_log        read what the service has written into its log, as Arrow record batches
    aio, sync       the same for asyncio, and for code without an event loop

Each name is loaded when it is first used: `import efo` itself is quick and imports no other package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

    from efo import aio, deserializers, events, sync
    from efo.aws.role import AssumedRole
    from efo.consumer.consume import consume
    from efo.consumer.consumer import Consumer
    from efo.consumer.handlers.batched import batched
    from efo.consumer.handlers.deserialize import BatchValueHandler, RecordValueHandler, deserialize, deserialize_record
    from efo.consumer.handlers.exactly_once import ExactlyOnceHandler, LoadPosition, PositionHandler, PositionMove
    from efo.consumer.handlers.failure_handler import HOLD, HandlerResult
    from efo.consumer.handlers.handler import BatchHandler, Flush, Handler, RecordHandler
    from efo.consumer.handlers.in_thread import in_thread
    from efo.consumer.handlers.processor import Checkpointer, ProcessorReader, RecordProcessor
    from efo.consumer.opening import open_consumer
    from efo.consumer.processes import Processes, WorkerProcesses, consume_in_processes
    from efo.consumer.shard_stream import ShardStream
    from efo.consumer.shard_task import ShardReader
    from efo.consumer.status import ConsumerStatus, ShardStatus
    from efo.consumer.streams.config import StreamConfig, StreamLike, StreamTracker
    from efo.consumer.streams.consumer import MultiStreamConsumer, StreamState, StreamStatus
    from efo.consumer.streams.leases import MultiStreamTable, StreamLeases
    from efo.consumer.streams.opening import StreamObserver, consume_streams, open_streams
    from efo.deserializers.base import Deserializer
    from efo.errors import (
        AccessDeniedError,
        ChecksumError,
        ConfigurationError,
        ConsumerLimitError,
        ConsumerNotActiveError,
        ConsumerNotFoundError,
        ConsumerReplacedError,
        CredentialsError,
        DeliveryError,
        DeserializationError,
        EfoError,
        EventError,
        ExpiredCredentialsError,
        ExpiredIteratorError,
        FanOutRefusedError,
        FrameError,
        GoAwayError,
        HandlerError,
        InternalFailureError,
        IsolateShardError,
        KmsError,
        LeaseError,
        LeaseLostError,
        LeaseStoreCorruptError,
        LeaseStoreFullError,
        LeaseStoreLockedError,
        LeaseStoreUnavailableError,
        MissingExtraError,
        NotHttp2Error,
        NotVisibleError,
        OrderError,
        PositionRefusedError,
        ProducerClosedError,
        ProtocolError,
        ProxyError,
        RecordTooOldError,
        ResourceInUseError,
        ResourceNotFoundError,
        SchemaNotLoadedError,
        ServiceError,
        ShardGoneError,
        ShardNotReadError,
        SilenceError,
        StreamRecreatedError,
        StreamResetError,
        ThrottledError,
        TlsError,
        TransportError,
        WrongEndpointError,
    )
    from efo.events import Event, Observer, ignore_events
    from efo.kinesis.aws.client import open_kinesis
    from efo.kinesis.client import Connect, Correct, KinesisClient, Sign
    from efo.kinesis.control_plane import ControlPlane
    from efo.leases.inspection import Inspection
    from efo.leases.opening import open_lease_store
    from efo.leases.store import LeaseStore
    from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
    from efo.leases.stores.dynamodb.table import NewTable
    from efo.leases.stores.key_value import KeyValueLeaseStore
    from efo.leases.stores.memory import MemoryLeaseStore
    from efo.leases.stores.postgres.store import PostgresLeaseStore
    from efo.leases.stores.redis.store import RedisLeaseStore
    from efo.leases.stores.sqlite.store import SqliteLeaseStore
    from efo.leases.writes import LeaseWrite, ReleaseLease, RenewLease, SettleWrite, SingleWrites, TakeLease, write_each
    from efo.model import (
        AccountLimits,
        Batch,
        Checkpoint,
        ChildShard,
        FanOutConsumer,
        HashKeyRange,
        Lease,
        Position,
        PositionType,
        Record,
        Shard,
        ShardRead,
        StreamDescription,
    )
    from efo.producer.delivery import Delivery, PutResult
    from efo.producer.opening import open_producer
    from efo.producer.producer import Producer, ProducerRecord, Serializer
    from efo.producer.settings import ProducerSettings
    from efo.protocol.aggregation import AggregateMode
    from efo.protocol.assignment.balance import balanced_assignment, weighted_assignment
    from efo.protocol.assignment.placement import manual_assignment, zone_assignment
    from efo.protocol.assignment.view import Assignment, AssignmentPlan, AssignmentView
    from efo.protocol.failure import DeadLetter, DeadLetterSink, FailureAction, FailurePolicy, FinalAction, OnError
    from efo.protocol.reading import (
        ActiveReadMode,
        Condition,
        IsolatedShard,
        LeaseCounts,
        Overdue,
        Readings,
        ShardReading,
        ShardState,
        SubscriptionState,
    )
    from efo.protocol.subscription import SubscriptionTiming
    from efo.settings import (
        LATEST,
        TRIM_HORIZON,
        ConsumerSettings,
        OnServiceError,
        PositionLike,
        ReadMode,
        ShardSelection,
        StartAt,
        UntilLike,
    )
    from efo.telemetry.cloudwatch.kcl_metrics import CloudWatchLevel
    from efo.telemetry.cloudwatch.publisher import open_cloudwatch
    from efo.telemetry.combined import combine_observers
    from efo.telemetry.log import LoggingObserver
    from efo.telemetry.observer import OtelObserver
    from efo.telemetry.producer_observer import OtelProducerObserver
    from efo.telemetry.spans import OtelTracing
    from efo.telemetry.trace_context import TraceContext, TraceExtractor
    from efo_service.relay.read_log import read_log

_NAMES = {
    "efo.consumer.consume": "consume",
    "efo.consumer.consumer": "Consumer",
    "efo.consumer.handlers.batched": "batched",
    "efo.consumer.handlers.deserialize": "BatchValueHandler RecordValueHandler deserialize deserialize_record",
    "efo.consumer.opening": "open_consumer",
    "efo.consumer.handlers.exactly_once": "ExactlyOnceHandler LoadPosition PositionHandler PositionMove",
    "efo.consumer.handlers.failure_handler": "HOLD HandlerResult",
    "efo.consumer.handlers.handler": "BatchHandler Flush Handler RecordHandler",
    "efo.consumer.handlers.in_thread": "in_thread",
    "efo.consumer.processes": "Processes WorkerProcesses consume_in_processes",
    "efo.consumer.handlers.processor": "Checkpointer ProcessorReader RecordProcessor",
    "efo.consumer.shard_stream": "ShardStream",
    "efo.consumer.shard_task": "ShardReader",
    "efo.consumer.status": "ConsumerStatus ShardStatus",
    "efo.consumer.streams.config": "StreamConfig StreamLike StreamTracker",
    "efo.consumer.streams.consumer": "MultiStreamConsumer StreamState StreamStatus",
    "efo.consumer.streams.leases": "MultiStreamTable StreamLeases",
    "efo.consumer.streams.opening": "StreamObserver consume_streams open_streams",
    "efo.deserializers.base": "Deserializer",
    "efo.errors": (
        "AccessDeniedError ChecksumError ConfigurationError ConsumerLimitError ConsumerNotActiveError "
        "ConsumerNotFoundError ConsumerReplacedError CredentialsError DeliveryError DeserializationError EfoError "
        "EventError ExpiredCredentialsError ExpiredIteratorError FanOutRefusedError FrameError GoAwayError "
        "HandlerError InternalFailureError IsolateShardError KmsError LeaseError LeaseLostError LeaseStoreCorruptError "
        "LeaseStoreFullError LeaseStoreLockedError LeaseStoreUnavailableError MissingExtraError NotHttp2Error "
        "NotVisibleError OrderError PositionRefusedError ProducerClosedError "
        "ProtocolError ProxyError RecordTooOldError ResourceInUseError ResourceNotFoundError SchemaNotLoadedError "
        "ServiceError ShardGoneError ShardNotReadError SilenceError StreamRecreatedError StreamResetError "
        "ThrottledError TlsError TransportError WrongEndpointError"
    ),
    "efo.events": "Event Observer ignore_events",
    "efo.kinesis.aws.client": "open_kinesis",
    "efo.aws.role": "AssumedRole",
    "efo.kinesis.client": "Connect Correct KinesisClient Sign",
    "efo.kinesis.control_plane": "ControlPlane",
    "efo.leases.opening": "open_lease_store",
    "efo.leases.inspection": "Inspection",
    "efo.leases.store": "LeaseStore",
    "efo.leases.stores.dynamodb.store": "DynamoDbLeaseStore",
    "efo.leases.stores.dynamodb.table": "NewTable",
    "efo.leases.stores.key_value": "KeyValueLeaseStore",
    "efo.leases.stores.memory": "MemoryLeaseStore",
    "efo.leases.stores.postgres.store": "PostgresLeaseStore",
    "efo.leases.stores.redis.store": "RedisLeaseStore",
    "efo.leases.stores.sqlite.store": "SqliteLeaseStore",
    "efo.leases.writes": "LeaseWrite ReleaseLease RenewLease SettleWrite SingleWrites TakeLease write_each",
    "efo.model": (
        "AccountLimits Batch Checkpoint ChildShard FanOutConsumer HashKeyRange Lease Position PositionType Record "
        "Shard ShardRead StreamDescription"
    ),
    "efo.producer.delivery": "Delivery PutResult",
    "efo.producer.opening": "open_producer",
    "efo.producer.producer": "Producer ProducerRecord Serializer",
    "efo.producer.settings": "ProducerSettings",
    "efo.protocol.aggregation": "AggregateMode",
    "efo.protocol.assignment.balance": "balanced_assignment weighted_assignment",
    "efo.protocol.assignment.placement": "manual_assignment zone_assignment",
    "efo.protocol.assignment.view": "Assignment AssignmentPlan AssignmentView",
    "efo.protocol.failure": "DeadLetter DeadLetterSink FailureAction FailurePolicy FinalAction OnError",
    "efo.protocol.reading": (
        "ActiveReadMode Condition IsolatedShard LeaseCounts Overdue Readings ShardReading ShardState SubscriptionState"
    ),
    "efo.protocol.subscription": "SubscriptionTiming",
    "efo.settings": (
        "LATEST TRIM_HORIZON ConsumerSettings OnServiceError PositionLike ReadMode ShardSelection StartAt UntilLike"
    ),
    "efo.telemetry.cloudwatch.kcl_metrics": "CloudWatchLevel",
    "efo.telemetry.cloudwatch.publisher": "open_cloudwatch",
    "efo.telemetry.combined": "combine_observers",
    "efo.telemetry.log": "LoggingObserver",
    "efo.telemetry.observer": "OtelObserver",
    "efo.telemetry.producer_observer": "OtelProducerObserver",
    "efo.telemetry.spans": "OtelTracing",
    "efo.telemetry.trace_context": "TraceContext TraceExtractor",
    "efo_service.relay.read_log": "read_log",
}
"""The names of each module. They stand here once more so that no module is imported before one of its names is used."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = (
    "HOLD",
    "LATEST",
    "TRIM_HORIZON",
    "AccessDeniedError",
    "AccountLimits",
    "ActiveReadMode",
    "AggregateMode",
    "Assignment",
    "AssignmentPlan",
    "AssignmentView",
    "AssumedRole",
    "Batch",
    "BatchHandler",
    "BatchValueHandler",
    "Checkpoint",
    "Checkpointer",
    "ChecksumError",
    "ChildShard",
    "CloudWatchLevel",
    "Condition",
    "ConfigurationError",
    "Connect",
    "Consumer",
    "ConsumerLimitError",
    "ConsumerNotActiveError",
    "ConsumerNotFoundError",
    "ConsumerReplacedError",
    "ConsumerSettings",
    "ConsumerStatus",
    "ControlPlane",
    "Correct",
    "CredentialsError",
    "DeadLetter",
    "DeadLetterSink",
    "Delivery",
    "DeliveryError",
    "DeserializationError",
    "Deserializer",
    "DynamoDbLeaseStore",
    "EfoError",
    "Event",
    "EventError",
    "ExactlyOnceHandler",
    "ExpiredCredentialsError",
    "ExpiredIteratorError",
    "FailureAction",
    "FailurePolicy",
    "FanOutConsumer",
    "FanOutRefusedError",
    "FinalAction",
    "Flush",
    "FrameError",
    "GoAwayError",
    "Handler",
    "HandlerError",
    "HandlerResult",
    "HashKeyRange",
    "Inspection",
    "InternalFailureError",
    "IsolateShardError",
    "IsolatedShard",
    "KeyValueLeaseStore",
    "KinesisClient",
    "KmsError",
    "Lease",
    "LeaseCounts",
    "LeaseError",
    "LeaseLostError",
    "LeaseStore",
    "LeaseStoreCorruptError",
    "LeaseStoreFullError",
    "LeaseStoreLockedError",
    "LeaseStoreUnavailableError",
    "LeaseWrite",
    "LoadPosition",
    "LoggingObserver",
    "MemoryLeaseStore",
    "MissingExtraError",
    "MultiStreamConsumer",
    "MultiStreamTable",
    "NewTable",
    "NotHttp2Error",
    "NotVisibleError",
    "Observer",
    "OnError",
    "OnServiceError",
    "OrderError",
    "OtelObserver",
    "OtelProducerObserver",
    "OtelTracing",
    "Overdue",
    "Position",
    "PositionHandler",
    "PositionLike",
    "PositionMove",
    "PositionRefusedError",
    "PositionType",
    "PostgresLeaseStore",
    "Processes",
    "ProcessorReader",
    "Producer",
    "ProducerClosedError",
    "ProducerRecord",
    "ProducerSettings",
    "ProtocolError",
    "ProxyError",
    "PutResult",
    "ReadMode",
    "Readings",
    "Record",
    "RecordHandler",
    "RecordProcessor",
    "RecordTooOldError",
    "RecordValueHandler",
    "RedisLeaseStore",
    "ReleaseLease",
    "RenewLease",
    "ResourceInUseError",
    "ResourceNotFoundError",
    "SchemaNotLoadedError",
    "Serializer",
    "ServiceError",
    "SettleWrite",
    "Shard",
    "ShardGoneError",
    "ShardNotReadError",
    "ShardRead",
    "ShardReader",
    "ShardReading",
    "ShardSelection",
    "ShardState",
    "ShardStatus",
    "ShardStream",
    "Sign",
    "SilenceError",
    "SingleWrites",
    "SqliteLeaseStore",
    "StartAt",
    "StreamConfig",
    "StreamDescription",
    "StreamLeases",
    "StreamLike",
    "StreamObserver",
    "StreamRecreatedError",
    "StreamResetError",
    "StreamState",
    "StreamStatus",
    "StreamTracker",
    "SubscriptionState",
    "SubscriptionTiming",
    "TakeLease",
    "ThrottledError",
    "TlsError",
    "TraceContext",
    "TraceExtractor",
    "TransportError",
    "UntilLike",
    "WorkerProcesses",
    "WrongEndpointError",
    "aio",
    "balanced_assignment",
    "batched",
    "combine_observers",
    "consume",
    "consume_in_processes",
    "consume_streams",
    "deserialize",
    "deserialize_record",
    "deserializers",
    "events",
    "ignore_events",
    "in_thread",
    "manual_assignment",
    "open_cloudwatch",
    "open_consumer",
    "open_kinesis",
    "open_lease_store",
    "open_producer",
    "open_streams",
    "read_log",
    "sync",
    "weighted_assignment",
    "write_each",
    "zone_assignment",
)

if not TYPE_CHECKING:  # type checkers would otherwise accept any name

    def __getattr__(name: str) -> object:
        if name in {"aio", "deserializers", "events", "sync"}:
            return import_module(f"efo.{name}")
        if name == "__version__":
            return _version()
        if name not in _MODULES:
            raise AttributeError(f"module 'efo' has no attribute {name!r}", name=name, obj=__import__(__name__))
        return getattr(import_module(_MODULES[name]), name)

    def _version() -> str:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import, and seldom used

        try:
            return version("efo")
        except PackageNotFoundError:  # its files without its metadata, such as those that Spark ships to workers
            return "unknown"

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
