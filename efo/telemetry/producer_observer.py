"""Feeds OpenTelemetry instruments from the diagnostic events of a producer. It needs only the API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from efo.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    ProducerOpened,
    PutRecordsCalled,
    RecordsDelivered,
    RecordsNotDelivered,
    StreamReset,
)
from efo.events.producer import ProducerReadings
from efo.telemetry import instruments, producer_instruments
from efo.telemetry.instruments import Instrument
from efo.telemetry.observer import create_instrument, error_attributes
from efo.telemetry.shard_series import observables_of


class OtelProducerObserver:
    """An observer of a producer that feeds the instruments of `efo.telemetry.producer_instruments`.

    `stream` is an attribute of all of them but those of connections; `server_address`, the endpoint's host, is one of
    the duration of calls. `meter_provider`: None for the global one.

    Several producers may share a provider. Of those of one stream, the last one has the gauge of the buffer.
    """

    def __init__(
        self, *, stream: str, server_address: str | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._common = {"messaging.system": "aws.kinesis", "messaging.destination.name": stream}
        operation = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
        self._operation = self._common | operation | ({"server.address": server_address} if server_address else {})
        self._sent = self._common | {"messaging.operation.name": "send"}
        self._readings: ProducerReadings | None = None
        meter = get_meter("efo", meter_provider=meter_provider, schema_url=instruments.SCHEMA_URL)
        self._instruments: dict[Instrument, Any] = {
            instrument: create_instrument(meter, instrument)
            for instrument in producer_instruments.ALL
            if instrument is not producer_instruments.BUFFERED
        }
        observables_of(meter).observe(meter, producer_instruments.BUFFERED, stream, self._observe_buffered)
        self._feeds: dict[type, Callable[[Any], None]] = {
            ProducerOpened: self._opened,
            PutRecordsCalled: self._called,
            RecordsDelivered: self._delivered,
            RecordsNotDelivered: self._not_delivered,
            ConnectionOpened: lambda event: self._connection(event, 1),
            ConnectionClosed: lambda event: self._connection(event, -1),
            StreamReset: self._reset,
        }

    def __call__(self, event: Event) -> None:
        """Feed the instruments from one event."""
        if feed := self._feeds.get(type(event)):
            feed(event)

    def _opened(self, event: ProducerOpened) -> None:
        self._readings = event.readings

    def _called(self, event: PutRecordsCalled) -> None:
        error = error_attributes(event.error_type)
        self._instruments[instruments.OPERATION_DURATION].record(event.duration, self._operation | error)
        self._add(producer_instruments.PUT_IO, event.data_bytes)
        if event.again:
            self._add(producer_instruments.RETRIES, event.again, error)

    def _delivered(self, event: RecordsDelivered) -> None:
        self._instruments[producer_instruments.SENT].add(event.records, self._sent)
        self._add(producer_instruments.KINESIS_RECORDS, event.kinesis_records)
        self._instruments[producer_instruments.DELIVERY_DURATION].record(event.latency, self._common)
        self._instruments[producer_instruments.DELIVERY_ATTEMPTS].record(event.attempts, self._common)

    def _not_delivered(self, event: RecordsNotDelivered) -> None:
        attributes = self._sent | error_attributes(event.error_type)
        self._instruments[producer_instruments.SENT].add(event.records, attributes)

    def _connection(self, event: ConnectionOpened | ConnectionClosed, change: int) -> None:
        self._instruments[instruments.CONNECTION_ACTIVE].add(change, {"server.address": event.address})

    def _reset(self, event: StreamReset) -> None:
        attributes = {"server.address": event.address, "efo.http2.error_code": event.error_code}
        self._instruments[instruments.HTTP2_RESETS].add(1, attributes)

    def _add(self, instrument: Instrument, amount: int, attributes: Mapping[str, str] | None = None) -> None:
        self._instruments[instrument].add(amount, {**self._common, **(attributes or {})})

    def _observe_buffered(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [] if self._readings is None else [Observation(self._readings.buffered_bytes, self._common)]
