from efo import (
    aio as aio,
    deserializers as deserializers,
    errors as errors,
    events as events,
    health as health,
    kinesis as kinesis,
    leases as leases,
    model as model,
    sync as sync,
    telemetry as telemetry,
)
from efo.aws.role import AssumedRole as AssumedRole
from efo.consumer.consumer import Consumer as Consumer
from efo.consumer.handlers.batched import batched as batched, in_thread as in_thread
from efo.consumer.handlers.deserialize import deserialize as deserialize, deserialize_record as deserialize_record
from efo.consumer.handlers.exactly_once import (
    ExactlyOnceHandler as ExactlyOnceHandler,
    LoadPosition as LoadPosition,
    PositionHandler as PositionHandler,
    PositionMove as PositionMove,
)
from efo.consumer.handlers.failure_handler import HOLD as HOLD, HandlerResult as HandlerResult
from efo.consumer.handlers.handler import (
    BatchHandler as BatchHandler,
    Flush as Flush,
    Handler as Handler,
    RecordHandler as RecordHandler,
)
from efo.consumer.handlers.processor import (
    Checkpointer as Checkpointer,
    ProcessorReader as ProcessorReader,
    RecordProcessor as RecordProcessor,
)
from efo.consumer.opening import consume as consume, open_consumer as open_consumer
from efo.consumer.processes import (
    Processes as Processes,
    WorkerProcesses as WorkerProcesses,
    consume_in_processes as consume_in_processes,
)
from efo.consumer.shard_stream import ShardStream as ShardStream
from efo.consumer.shard_task import ShardReader as ShardReader
from efo.consumer.status import ConsumerStatus as ConsumerStatus, ShardStatus as ShardStatus
from efo.consumer.streams.config import (
    StreamConfig as StreamConfig,
    StreamLike as StreamLike,
    StreamTracker as StreamTracker,
)
from efo.consumer.streams.consumer import (
    MultiStreamConsumer as MultiStreamConsumer,
    StreamState as StreamState,
    StreamStatus as StreamStatus,
)
from efo.consumer.streams.opening import (
    StreamObserver as StreamObserver,
    consume_streams as consume_streams,
    open_streams as open_streams,
)
from efo.kinesis.aws.client import open_kinesis as open_kinesis
from efo.kinesis.client import KinesisClient as KinesisClient
from efo.leases.opening import open_lease_store as open_lease_store
from efo.model import Batch as Batch, Checkpoint as Checkpoint, Position as Position, Record as Record
from efo.producer.delivery import Delivery as Delivery, PutResult as PutResult
from efo.producer.opening import open_producer as open_producer
from efo.producer.producer import Producer as Producer, ProducerRecord as ProducerRecord, Serializer as Serializer
from efo.producer.settings import ProducerSettings as ProducerSettings
from efo.protocol.aggregation import AggregateMode as AggregateMode
from efo.protocol.failure import (
    DeadLetter as DeadLetter,
    DeadLetterSink as DeadLetterSink,
    FailureAction as FailureAction,
    FailurePolicy as FailurePolicy,
    FinalAction as FinalAction,
    OnError as OnError,
)
from efo.protocol.subscription import SubscriptionTiming as SubscriptionTiming
from efo.settings import (
    LATEST as LATEST,
    TRIM_HORIZON as TRIM_HORIZON,
    ConsumerSettings as ConsumerSettings,
    OnServiceError as OnServiceError,
    PositionLike as PositionLike,
    ReadMode as ReadMode,
    ShardSelection as ShardSelection,
    StartAt as StartAt,
    UntilLike as UntilLike,
)
from efo_service.log.read_log import read_log as read_log

__version__: str
