"""The table of efo's OpenTelemetry instruments: names, kinds, units, meanings, buckets.

Names follow OpenTelemetry's naming rules and, where there is one, its messaging conventions (Development as of
1.44.0); the rest has the prefix `efo`. Each instrument is fed by `efo.telemetry.observer`, and only those stand here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

Kind = Literal[
    "counter", "up_down_counter", "gauge", "histogram",
    "observable_counter", "observable_up_down_counter", "observable_gauge",
]  # fmt: skip
"""Observable kinds are those with the shard as an attribute: their series end with the shard."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """One instrument. `buckets`: upper bounds of a histogram, in its unit."""

    name: str
    kind: Kind
    unit: str
    description: str
    buckets: tuple[float, ...] | None = None


# The messaging conventions' advice for durations of operations.
_LATENCY: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
# From a tenth of a second to Kinesis' default retention of a day: an hour behind must still be told from ten.
_AGE: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400)
# Fine around 300 s, where the service ends a subscription, and below it, where efo renews (rule R7).
_LIFETIME: Final = (1, 5, 15, 30, 60, 120, 180, 240, 290, 300, 310, 330)
_WAIT: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
# The service pushes an event about every 5 s; 35 s of silence end a subscription (rule R8).
_INTERVAL: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 15, 30)

CONSUMED: Final = Instrument(
    "messaging.client.consumed.messages", "observable_counter", "{message}", "Records that the handler is done with."
)
PROCESS_DURATION: Final = Instrument(
    "messaging.process.duration", "histogram", "s", "Time that the handler took for a batch.", _LATENCY
)
OPERATION_DURATION: Final = Instrument(
    "messaging.client.operation.duration",
    "histogram",
    "s",
    "Time until SubscribeToShard was answered, and time that saving a checkpoint took.",
    _LATENCY,
)
CONSUMER_LAG: Final = Instrument(
    "efo.consumer.lag", "observable_gauge", "s", "How far the last event was behind the shard's tip."
)
RECORD_AGE: Final = Instrument(
    "efo.record.age",
    "histogram",
    "s",
    "Time from a record's arrival in Kinesis until the handler was done with it; the oldest of each batch.",
    _AGE,
)
RECORD_INFLIGHT: Final = Instrument(
    "efo.record.inflight",
    "observable_up_down_counter",
    "{record}",
    "Records that were given to the handler and are not acked.",
)
BACKPRESSURE_TIME: Final = Instrument(
    "efo.backpressure.time",
    "observable_counter",
    "s",
    "Time that events which had arrived waited for the handler (rule R9).",
)
SUBSCRIPTION_ACTIVE: Final = Instrument(
    "efo.subscription.active", "up_down_counter", "{subscription}", "Subscriptions that are open now."
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
    "Time that a call of SubscribeToShard waited for its turn (rule R6).",
    _WAIT,
)
EVENT_INTERVAL: Final = Instrument(
    "efo.subscription.event.interval", "histogram", "s", "Time between two events of a shard.", _INTERVAL
)
SUBSCRIPTION_IO: Final = Instrument(
    "efo.subscription.io", "observable_counter", "By", "Bytes of events on the wire, with their framing."
)
DECODE_ERRORS: Final = Instrument(
    "efo.decode.errors",
    "counter",
    "{error}",
    "What could not be decoded: a subscription's events, or a KPL aggregate.",
)
SHARD_COUNT: Final = Instrument("efo.shard.count", "gauge", "{shard}", "Shards by state.")
LEASE_COUNT: Final = Instrument("efo.lease.count", "gauge", "{lease}", "Leases by state.")
LEASE_OPERATIONS: Final = Instrument("efo.lease.operations", "counter", "{operation}", "Operations on the lease store.")
LEASE_OPERATION_DURATION: Final = Instrument(
    "efo.lease.operation.duration", "histogram", "s", "Time that an operation on the lease store took.", _LATENCY
)
LEASE_LOSSES: Final = Instrument("efo.lease.losses", "counter", "{lease}", "Leases that were lost, by reason.")
CHECKPOINT_AGE: Final = Instrument(
    "efo.checkpoint.age",
    "observable_gauge",
    "s",
    "Time since the shard's checkpoint was saved; before the first, since its reading began.",
)
WORKER_COUNT: Final = Instrument("efo.worker.count", "gauge", "{worker}", "Workers that hold leases.")
CONNECTION_ACTIVE: Final = Instrument(
    "efo.http2.connection.active", "up_down_counter", "{connection}", "HTTP/2 connections that are open now."
)
HTTP2_RESETS: Final = Instrument(
    "efo.http2.resets", "counter", "{reset}", "HTTP/2 streams that the service reset, by its error code."
)

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Instrument))
