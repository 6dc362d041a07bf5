"""The OpenTelemetry instruments of efo: names, kinds, units, descriptions, buckets.

Names follow OpenTelemetry's naming rules and, where they apply, its messaging conventions (Development as of 1.44.0).
Other names have the prefix `efo`. `efo.telemetry.observer` feeds each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

Kind = Literal[
    "counter", "up_down_counter", "histogram", "observable_counter", "observable_up_down_counter", "observable_gauge",
]  # fmt: skip
"""Observable kinds are computed when they are exported. Their series end when there is nothing to tell: when a shard is
no longer read, or while the lease table is unknown."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """One instrument. `buckets`: upper bounds of a histogram, in its unit."""

    name: str
    kind: Kind
    unit: str
    description: str
    buckets: tuple[float, ...] | None = None


# The buckets that the messaging conventions advise for durations of operations.
_LATENCY: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
# From 50 ms to a day, the default retention of Kinesis: an hour must still differ from ten hours.
_AGE: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400)
# Fine below 300 s, where efo renews a subscription (rule R7), and at 300 s, where the service ends it.
_LIFETIME: Final = (1, 5, 15, 30, 60, 120, 180, 240, 290, 300, 310, 330)
_WAIT: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
# The service sends an event about every 5 s; a subscription ends after 35 s of silence (rule R8).
_INTERVAL: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 15, 30)

CONSUMED: Final = Instrument(
    "messaging.client.consumed.messages",
    "observable_counter",
    "{message}",
    "Records that the handler has processed.",
)
PROCESS_DURATION: Final = Instrument(
    "messaging.process.duration",
    "histogram",
    "s",
    "Time that the handler took for a batch; the first 100 of all shards in each second, and each longer one.",
    _LATENCY,
)
OPERATION_DURATION: Final = Instrument(
    "messaging.client.operation.duration",
    "histogram",
    "s",
    "Time until the response to SubscribeToShard or PutRecords, for a call of polling, and to save a checkpoint.",
    _LATENCY,
)
CONSUMER_LAG: Final = Instrument(
    "efo.consumer.lag",
    "observable_gauge",
    "s",
    "Time since what was acked of the shard was known to be current; grows while no event arrives or none is acked.",
)
READ_LAG: Final = Instrument(
    "efo.consumer.read.lag",
    "observable_gauge",
    "s",
    "The lag of reading alone, without records that were read and are not acked.",
)
UNACKED_AGE: Final = Instrument(
    "efo.record.unacked.age",
    "observable_gauge",
    "s",
    "Time since the oldest record was delivered that is not acked: for a relay, that its sink has not committed.",
)
EVENT_AGE: Final = Instrument(
    "efo.subscription.event.age",
    "observable_gauge",
    "s",
    "Time since the last event of the shard; an idle shard gets one about every 5 s.",
)
SHARD_STATUS: Final = Instrument(
    "efo.shard.status",
    "observable_up_down_counter",
    "{shard}",
    "1 for each shard, with the state of its subscription, whether it is read, and how.",
)
RECORD_AGE: Final = Instrument(
    "efo.record.age",
    "histogram",
    "s",
    "Time from a record's arrival in Kinesis until it was processed; of each shard the highest, once a second or less.",
    _AGE,
)
RECORD_INFLIGHT: Final = Instrument(
    "efo.record.inflight",
    "observable_up_down_counter",
    "{record}",
    "Records that were delivered to the handler and are not acked.",
)
BACKPRESSURE_TIME: Final = Instrument(
    "efo.backpressure.time",
    "observable_counter",
    "s",
    "Time that events, and the ends of subscriptions, waited for the handler after their arrival (rule R9).",
)
SUBSCRIPTION_ACTIVE: Final = Instrument(
    "efo.subscription.active", "up_down_counter", "{subscription}", "Open subscriptions."
)
SUBSCRIPTION_ATTEMPTS: Final = Instrument(
    "efo.subscription.attempts", "counter", "{attempt}", "Calls of SubscribeToShard."
)
SUBSCRIPTION_DURATION: Final = Instrument(
    "efo.subscription.duration", "histogram", "s", "Age of a subscription when it ended.", _LIFETIME
)
SUBSCRIPTION_WAIT: Final = Instrument(
    "efo.subscription.wait.duration",
    "histogram",
    "s",
    "Time that a call of SubscribeToShard waited for the subscribe budget (rule R6).",
    _WAIT,
)
EVENT_INTERVAL: Final = Instrument(
    "efo.subscription.event.interval",
    "histogram",
    "s",
    "Time between two events of a shard; of each shard the highest, once a second or less.",
    _INTERVAL,
)
SUBSCRIPTION_IO: Final = Instrument(
    "efo.subscription.io", "observable_counter", "By", "Bytes of events on the wire, with framing."
)
DECODE_ERRORS: Final = Instrument(
    "efo.decode.errors",
    "counter",
    "{error}",
    "Events of a subscription, or KPL aggregates, that could not be decoded.",
)
RECORD_FAILURES: Final = Instrument(
    "efo.record.failures",
    "counter",
    "{record}",
    "Records that were skipped or dead-lettered, since their handler or sink refused them (rule R11).",
)
RECORDS_FILTERED: Final = Instrument(
    "efo.record.filtered",
    "observable_counter",
    "{record}",
    "User records that were filtered out of aggregates, since their hash keys are not the shard's (rule R17); by mode.",
)
RECORD_EXPIRED_TIME: Final = Instrument(
    "efo.record.expired.time",
    "counter",
    "s",
    "How much time's records may have expired before they were read (rule R5).",
)
RECORDS_DROPPED: Final = Instrument(
    "efo.record.dropped",
    "counter",
    "{record}",
    "Records that a limit of age dropped, by reason: too_old (max_record_age_seconds), behind"
    " (skip_when_behind_seconds, as far as they were read).",
)
RECORD_SKIPPED_TIME: Final = Instrument(
    "efo.record.skipped.time",
    "counter",
    "s",
    "How much time's records were skipped unread by skip_when_behind_seconds.",
)
SHARD_ISOLATIONS: Final = Instrument(
    "efo.shard.isolations", "counter", "{isolation}", "Isolations of shards that failed (rule R11)."
)
SHARD_COUNT: Final = Instrument(
    "efo.shards", "observable_gauge", "{shard}", "Shards by state; absent while the lease table is unknown."
)
LEASE_COUNT: Final = Instrument(
    "efo.leases", "observable_gauge", "{lease}", "Leases by state; absent while the lease table is unknown."
)
LEASE_OPERATIONS: Final = Instrument("efo.lease.operations", "counter", "{operation}", "Operations on the lease store.")
LEASE_OPERATION_DURATION: Final = Instrument(
    "efo.lease.operation.duration", "histogram", "s", "Duration of operations on the lease store.", _LATENCY
)
LEASE_LOSSES: Final = Instrument("efo.lease.losses", "counter", "{lease}", "Leases that were lost, by reason.")
CHECKPOINT_AGE: Final = Instrument(
    "efo.checkpoint.age",
    "observable_gauge",
    "s",
    "Time since records were delivered that no saved checkpoint includes; 0 if none were.",
)
WORKER_COUNT: Final = Instrument(
    "efo.workers",
    "observable_gauge",
    "{worker}",
    "Workers that hold leases; absent while the lease table is unknown.",
)
CONNECTION_ACTIVE: Final = Instrument(
    "efo.http2.connection.active", "up_down_counter", "{connection}", "Open HTTP/2 connections."
)
HTTP2_RESETS: Final = Instrument(
    "efo.http2.resets", "counter", "{reset}", "HTTP/2 streams that the service reset, by its error code."
)

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Instrument))
