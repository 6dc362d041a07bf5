"""efo reads Amazon Kinesis Data Streams by enhanced fan-out, on trio.

    consume         read a stream with a handler: the simple case
    open_consumer   shards as streams of batches, with acks: the full one

The names are loaded when they are used: `import efo` alone is quick and imports no other package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from efo.consumer import Consumer, ConsumerStatus, open_consumer
    from efo.consuming import consume
    from efo.errors import EfoError, ShardNotReadError, StopShardError
    from efo.handling import Handling
    from efo.kinesis.aws import open_kinesis
    from efo.leases.dynamodb import DynamoDbLeaseStore
    from efo.leases.memory import MemoryLeaseStore
    from efo.leases.postgres import PostgresLeaseStore
    from efo.leases.redis import RedisLeaseStore
    from efo.leases.sqlite import SqliteLeaseStore
    from efo.model import Batch, Checkpoint, Lease, Position, Record
    from efo.protocol.aggregation import AggregateMode
    from efo.protocol.failure import FailurePolicy
    from efo.settings import ConsumerSettings
    from efo.settling import HOLD, DeadLetter
    from efo.shard_stream import ShardStream
    from efo.telemetry import OtelObserver

_HOMES = {
    "AggregateMode": "efo.protocol.aggregation",
    "Batch": "efo.model",
    "Checkpoint": "efo.model",
    "Consumer": "efo.consumer",
    "ConsumerSettings": "efo.settings",
    "ConsumerStatus": "efo.consumer",
    "DeadLetter": "efo.settling",
    "DynamoDbLeaseStore": "efo.leases.dynamodb",
    "EfoError": "efo.errors",
    "FailurePolicy": "efo.protocol.failure",
    "HOLD": "efo.settling",
    "Handling": "efo.handling",
    "Lease": "efo.model",
    "MemoryLeaseStore": "efo.leases.memory",
    "OtelObserver": "efo.telemetry",
    "Position": "efo.model",
    "PostgresLeaseStore": "efo.leases.postgres",
    "Record": "efo.model",
    "RedisLeaseStore": "efo.leases.redis",
    "ShardNotReadError": "efo.errors",
    "ShardStream": "efo.shard_stream",
    "SqliteLeaseStore": "efo.leases.sqlite",
    "StopShardError": "efo.errors",
    "consume": "efo.consuming",
    "open_consumer": "efo.consumer",
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
    "Handling",
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
    "StopShardError",
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
