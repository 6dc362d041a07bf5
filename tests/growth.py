"""How much a long-lived object holds: for tests that it does not grow while shards come and go."""

from __future__ import annotations

import gc
from collections import deque
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from efo import events
from efo.model import Checkpoint
from efo.protocol.aggregation import AggregateMode

_LEAVES = (type, ModuleType, FunctionType, BuiltinFunctionType, str, bytes, int, float, type(None))


def items_held(*roots: object, without: tuple[type, ...] = ()) -> int:
    """Return how many items all containers have that can be reached from these objects, without modules and classes.

    `without`: types of objects that are no part of them.
    """
    seen: set[int] = set()
    waiting: deque[Any] = deque(roots)
    count = 0
    while waiting:
        each = waiting.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, MethodType):
            waiting.append(each.__self__)
            continue
        if isinstance(each, FunctionType):
            waiting.extend(cell.cell_contents for cell in each.__closure__ or ())
            continue
        if isinstance(each, (*_LEAVES, *without)):
            continue
        if isinstance(each, dict | list | set | frozenset | deque):
            count += len(each)
        waiting.extend(gc.get_referents(each))
    return count


def life_of(shard_id: str, parent: str = "parent") -> list[events.Event]:
    """Return what a consumer reports of one shard, from its beginning to its end: also what comes late."""
    return [
        events.ShardStarted(shard_id, Checkpoint.TRIM_HORIZON),
        events.SubscribeAttempted(shard_id, 0.0, 0.1, "ResourceInUseException", "busy"),
        events.SubscribeAttempted(shard_id, 0.0, 0.1, "transport", "cut"),
        events.SubscribeAttempted(shard_id, 0.0, 0.1, None),
        events.PollAttempted(shard_id, "GetRecords", 0.1, "throttled", "5 calls"),
        events.EventReceived(shard_id, 2, 100, 0, 1.0),
        events.DeliveryBlocked(shard_id, 0.2),
        events.BatchDelivered(shard_id, 2),
        events.RecordsFiltered(shard_id, "7", 1, AggregateMode.FILTER),
        events.HandlerFailed(shard_id, "7", 2, 1, 0.1, "ValueError", "retry", 0.1),
        events.RecordSkipped(shard_id, "7", 0, "ValueError"),
        events.RecordsProcessed(shard_id, 2, 0.1, 1.0, 1.0),
        events.SinkRetried(shard_id, "sink_full", "no room", 1.0),
        events.LeaseStoreCalled("checkpoint", shard_id, 0.1),
        events.CheckpointSaved(shard_id, Checkpoint("7")),
        events.SubscriptionEnded(shard_id, 10.0, "shard_end"),
        events.ShardFinished(shard_id, (f"{shard_id}-child",)),
        events.RecordsProcessed(shard_id, 2, 0.1, 1.0, 1.0),
        events.EventReceived(shard_id, 2, 100, 0, 1.0),
        events.CheckpointSaved(shard_id, Checkpoint.SHARD_END),
    ]
