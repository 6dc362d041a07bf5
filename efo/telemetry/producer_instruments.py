"""The OpenTelemetry instruments of a producer. `efo.telemetry.instruments` says how they are named.

Those of connections and of calls are the consumer's: `efo.telemetry.producer_observer` feeds them too.
"""

from __future__ import annotations

from typing import Final

from efo.telemetry.instruments import CONNECTION_ACTIVE, HTTP2_RESETS, OPERATION_DURATION, Instrument

_DELIVERY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_ATTEMPTS: Final = (1, 2, 3, 5, 10, 20, 50)

SENT: Final = Instrument(
    "messaging.client.sent.messages",
    "counter",
    "{message}",
    "User records that were stored, and those that were given up, with `error.type`.",
)
DELIVERY_DURATION: Final = Instrument(
    "efo.producer.delivery.duration",
    "histogram",
    "s",
    "Time from the put of a record until it was stored; of each request and shard the highest.",
    _DELIVERY,
)
DELIVERY_ATTEMPTS: Final = Instrument(
    "efo.producer.delivery.attempts",
    "histogram",
    "{attempt}",
    "Requests until a record was stored; of each request and shard the highest.",
    _ATTEMPTS,
)
KINESIS_RECORDS: Final = Instrument(
    "efo.producer.records", "counter", "{record}", "Kinesis records that were stored: aggregates, and plain records."
)
RETRIES: Final = Instrument(
    "efo.producer.retries",
    "counter",
    "{record}",
    "Kinesis records that a request did not store and that are sent again.",
)
PUT_IO: Final = Instrument(
    "efo.producer.io", "counter", "By", "Data and partition keys in requests, repetitions included."
)
BUFFERED: Final = Instrument(
    "efo.producer.buffered",
    "observable_gauge",
    "By",
    "What counts against `max_buffered_bytes`; at that limit, `put` waits.",
)

OWN: Final = (SENT, DELIVERY_DURATION, DELIVERY_ATTEMPTS, KINESIS_RECORDS, RETRIES, PUT_IO, BUFFERED)
ALL: Final = (*OWN, OPERATION_DURATION, CONNECTION_ACTIVE, HTTP2_RESETS)
