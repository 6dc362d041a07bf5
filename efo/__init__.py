"""efo reads Amazon Kinesis Data Streams by enhanced fan-out, on trio.

    consume         read a stream with a handler: the simple case
    open_consumer   shards as streams of batches, with acks: the full one

The names are loaded when they are used: `import efo` alone is quick and imports no other package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from efo.consumer.consume import consume
    from efo.consumer.consumer import Consumer, ConsumerStatus, open_consumer
    from efo.consumer.failure_handler import HOLD, DeadLetter
    from efo.consumer.handler import Handler
    from efo.consumer.shard_stream import ShardStream
    from efo.errors import EfoError, IsolateShardError, ShardNotReadError
    from efo.kinesis.aws import open_kinesis
    from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
    from efo.leases.stores.memory import MemoryLeaseStore
    from efo.leases.stores.postgres.store import PostgresLeaseStore
    from efo.leases.stores.redis import RedisLeaseStore
    from efo.leases.stores.sqlite.store import SqliteLeaseStore
    from efo.model import Batch, Checkpoint, Lease, Position, Record
    from efo.protocol.aggregation import AggregateMode
    from efo.protocol.failure import FailurePolicy
    from efo.settings import ConsumerSettings
    from efo.telemetry.observer import OtelObserver

_HOMES = {
    "AggregateMode": "efo.protocol.aggregation",
    "Batch": "efo.model",
    "Checkpoint": "efo.model",
    "Consumer": "efo.consumer.consumer",
    "ConsumerSettings": "efo.settings",
    "ConsumerStatus": "efo.consumer.consumer",
    "DeadLetter": "efo.consumer.failure_handler",
    "DynamoDbLeaseStore": "efo.leases.stores.dynamodb.store",
    "EfoError": "efo.errors",
    "FailurePolicy": "efo.protocol.failure",
    "HOLD": "efo.consumer.failure_handler",
    "Handler": "efo.consumer.handler",
    "Lease": "efo.model",
    "MemoryLeaseStore": "efo.leases.stores.memory",
    "OtelObserver": "efo.telemetry.observer",
    "Position": "efo.model",
    "PostgresLeaseStore": "efo.leases.stores.postgres.store",
    "Record": "efo.model",
    "RedisLeaseStore": "efo.leases.stores.redis",
    "ShardNotReadError": "efo.errors",
    "ShardStream": "efo.consumer.shard_stream",
    "SqliteLeaseStore": "efo.leases.stores.sqlite.store",
    "IsolateShardError": "efo.errors",
    "consume": "efo.consumer.consume",
    "open_consumer": "efo.consumer.consumer",
    "open_kinesis": "efo.kinesis.aws",
}

__all__ = (
    "HOLD",
    "AggregateMode",
    "Batch",
    "Checkpoint",
    "Consumer",
    "ConsumerSettings",
    "ConsumerStatus",
    "DeadLetter",
    "DynamoDbLeaseStore",
    "EfoError",
    "FailurePolicy",
    "Handler",
    "IsolateShardError",
    "Lease",
    "MemoryLeaseStore",
    "OtelObserver",
    "Position",
    "PostgresLeaseStore",
    "Record",
    "RedisLeaseStore",
    "ShardNotReadError",
    "ShardStream",
    "SqliteLeaseStore",
    "consume",
    "open_consumer",
    "open_kinesis",
)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'efo' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
