"""What happens to batches and records: their delivery, their acks, and their failures."""

from __future__ import annotations

from typing import Literal

import msgspec

from efo.protocol.aggregation import AggregateMode
from efo.protocol.failure import FailureAction

FailedCall = Literal["handler", "dead_letter"]
"""Which of the application's functions failed."""


class BatchDelivered(msgspec.Struct, frozen=True):
    """A batch of this many records was delivered to the reader. RecordsProcessed follows when it is acked."""

    shard_id: str
    records: int


class RecordsProcessed(msgspec.Struct, frozen=True):
    """A batch was acked. `duration`: seconds since its delivery.

    `oldest_age`, `newest_age`: seconds from the arrival of its first and last record in Kinesis until now; None if the
    service did not send the arrival time. `data_bytes`: the data of the Kinesis records of its event, without framing;
    of an event in several batches, they are counted with the first.
    """

    shard_id: str
    records: int
    duration: float
    oldest_age: float | None
    newest_age: float | None
    data_bytes: int = 0


class AcksOverdue(msgspec.Struct, frozen=True):
    """Batches were delivered and are not acked, so that the checkpoint does not move. Reported each time they double.

    `batches`, `records`: how many are in flight. `oldest`: seconds since the delivery of the first of them.
    """

    shard_id: str
    batches: int
    records: int
    oldest: float


class HandlerFailed(msgspec.Struct, frozen=True):
    """A handler or a dead-letter sink raised, and the failure policy has decided what happens (rule R11).

    `sequence_number`: of the first of the `records` in the call. `attempt`: the number of this attempt, from 1.
    `duration`: seconds that the call took. `delay`: seconds until the next attempt. The exception's text is not
    included, since it may contain data.
    """

    shard_id: str
    sequence_number: str
    records: int
    attempt: int
    duration: float
    error_type: str
    action: FailureAction
    delay: float = 0.0
    call: FailedCall = "handler"


class RecordSkipped(msgspec.Struct, frozen=True):
    """A record was skipped by the failure policy, and counts as done (rule R11).

    Its handler failed, or its sink refuses it: `detail` says why, without data.
    """

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    error_type: str
    detail: str = ""


class RecordDeadLettered(msgspec.Struct, frozen=True):
    """A record was written to the dead-letter sink, and counts as done (rule R11). `detail`: as in RecordSkipped."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    error_type: str
    detail: str = ""


class SinkRetried(msgspec.Struct, frozen=True):
    """The sink of a shard failed, and is tried again after `delay` seconds. `shard_id`: empty while it opens."""

    shard_id: str
    error_type: str
    detail: str
    delay: float


class SinkRecovered(msgspec.Struct, frozen=True):
    """The sink of a shard works again, after SinkRetried."""

    shard_id: str


class AggregateDamaged(msgspec.Struct, frozen=True):
    """A record starts like a KPL aggregate but is not a valid one. It is delivered unchanged."""

    shard_id: str
    sequence_number: str
    problem: str


class RecordsFiltered(msgspec.Struct, frozen=True):
    """User records of an aggregate were filtered out: their hash keys are outside the shard's range (rule R17).

    `mode`: why. With "deduplicate", their producer puts them again. With "filter" and "drop", they may be lost.
    """

    shard_id: str
    sequence_number: str
    records: int
    mode: AggregateMode = AggregateMode.DEDUPLICATE


DropReason = Literal["too_old", "behind"]
"""Why records are dropped: `max_record_age_seconds`, or `skip_when_behind_seconds`."""


class RecordsDropped(msgspec.Struct, frozen=True):
    """Records that arrived from `since` to `until` were not delivered, since a limit of age asks for that.

    `reason` "too_old": these `records` were older than `max_record_age_seconds`. "behind": the shard was further behind
    than `skip_when_behind_seconds`, and goes on at `until`; what is between was not read, so that only `records` of it
    are known.
    Times are seconds since the epoch.
    """

    shard_id: str
    reason: DropReason
    since: float
    until: float
    records: int


class RecordsExpired(msgspec.Struct, frozen=True):
    """Records that arrived from `since` to `until` expired before they were read, if there were any (rule R5).

    Seconds since the epoch. `seconds`: how much of that time is gone. Nobody can read these records any more, so that
    their number, even whether there were any, cannot be known: the consumer was stopped, or behind, for longer than the
    stream keeps them. Of a shard that goes on like this, with growing pauses.
    """

    shard_id: str
    since: float
    until: float
    seconds: float
