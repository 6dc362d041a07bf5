"""Diagnostic events: what happens inside efo, reported to an observer.

Metrics, logs and status pages are observers. The modules that report events know none of them. An observer runs in the
task that reports: it must be quick and must not raise.

Events are msgspec's structs: defining one takes a thirtieth of the time of a frozen dataclass, making one a fifth.
"""

from __future__ import annotations

from collections.abc import Callable

from efo.events.leases import (
    AdviceGiven,
    AdviceTopic,
    CheckpointSaved,
    LeaseLost,
    LeaseOperation,
    LeasesCounted,
    LeaseStoreCalled,
)
from efo.events.producer import (
    DistributionChanged,
    ProducerOpened,
    ProducerReadings,
    PutRecordsCalled,
    RecordsDelivered,
    RecordsNotDelivered,
    ShardMapChanged,
)
from efo.events.records import (
    AcksOverdue,
    AggregateDamaged,
    BatchDelivered,
    DropReason,
    FailedCall,
    HandlerFailed,
    RecordDeadLettered,
    RecordsDropped,
    RecordsExpired,
    RecordsFiltered,
    RecordSkipped,
    RecordsProcessed,
    SinkRecovered,
    SinkRetried,
)
from efo.events.shards import (
    ConsumerFailed,
    HashRangeHoleFound,
    ParentCycleFound,
    ShardFinished,
    ShardGone,
    ShardIsolated,
    ShardPaused,
    ShardRepositioned,
    ShardResumed,
    ShardsCounted,
    ShardsListed,
    ShardStarted,
    ShardStopped,
    ShardSyncFailed,
    StartDelayed,
    StreamIdentified,
    StreamIsolated,
    StreamRestored,
)
from efo.events.subscriptions import (
    ConnectionClosed,
    ConnectionOpened,
    ConsumerDeregistered,
    ConsumerOpened,
    ConsumerReady,
    DeliveryBlocked,
    EndReason,
    EventReceived,
    PollAttempted,
    PollOperation,
    ReadModeChanged,
    StreamReset,
    SubscribeAttempted,
    SubscriptionEnded,
    WorkerStarted,
)

__all__ = [
    "AcksOverdue",
    "AdviceGiven",
    "AdviceTopic",
    "AggregateDamaged",
    "BatchDelivered",
    "CheckpointSaved",
    "ConnectionClosed",
    "ConnectionOpened",
    "ConsumerDeregistered",
    "ConsumerFailed",
    "ConsumerOpened",
    "ConsumerReady",
    "DeliveryBlocked",
    "DistributionChanged",
    "DropReason",
    "EndReason",
    "Event",
    "EventReceived",
    "FailedCall",
    "HandlerFailed",
    "HashRangeHoleFound",
    "LeaseLost",
    "LeaseOperation",
    "LeaseStoreCalled",
    "LeasesCounted",
    "Observer",
    "ParentCycleFound",
    "PollAttempted",
    "PollOperation",
    "ProducerOpened",
    "ProducerReadings",
    "PutRecordsCalled",
    "ReadModeChanged",
    "RecordDeadLettered",
    "RecordSkipped",
    "RecordsDelivered",
    "RecordsDropped",
    "RecordsExpired",
    "RecordsFiltered",
    "RecordsNotDelivered",
    "RecordsProcessed",
    "ShardFinished",
    "ShardGone",
    "ShardIsolated",
    "ShardMapChanged",
    "ShardPaused",
    "ShardRepositioned",
    "ShardResumed",
    "ShardStarted",
    "ShardStopped",
    "ShardSyncFailed",
    "ShardsCounted",
    "ShardsListed",
    "SinkRecovered",
    "SinkRetried",
    "StartDelayed",
    "StreamIdentified",
    "StreamIsolated",
    "StreamReset",
    "StreamRestored",
    "SubscribeAttempted",
    "SubscriptionEnded",
    "WorkerStarted",
    "ignore_events",
]

Event = (
    WorkerStarted
    | ConsumerOpened
    | ConsumerReady
    | ConsumerDeregistered
    | ConsumerFailed
    | AdviceGiven
    | SubscribeAttempted
    | SubscriptionEnded
    | EventReceived
    | PollAttempted
    | ReadModeChanged
    | DeliveryBlocked
    | BatchDelivered
    | RecordsProcessed
    | AcksOverdue
    | HandlerFailed
    | RecordSkipped
    | RecordDeadLettered
    | AggregateDamaged
    | RecordsDropped
    | RecordsExpired
    | RecordsFiltered
    | SinkRetried
    | SinkRecovered
    | ShardStarted
    | ShardFinished
    | ShardGone
    | ShardSyncFailed
    | ShardsListed
    | StreamIdentified
    | ParentCycleFound
    | HashRangeHoleFound
    | ShardStopped
    | ShardIsolated
    | StartDelayed
    | StreamIsolated
    | StreamRestored
    | ShardPaused
    | ShardResumed
    | ShardRepositioned
    | ShardsCounted
    | ProducerOpened
    | PutRecordsCalled
    | RecordsDelivered
    | RecordsNotDelivered
    | ShardMapChanged
    | DistributionChanged
    | LeaseStoreCalled
    | LeaseLost
    | LeasesCounted
    | CheckpointSaved
    | ConnectionOpened
    | ConnectionClosed
    | StreamReset
)
"""Any diagnostic event."""

Observer = Callable[[Event], None]
"""A function that is called with each diagnostic event."""


def ignore_events(_event: Event) -> None:
    """Ignore a diagnostic event: the observer for applications that want silence."""
