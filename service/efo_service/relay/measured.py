"""Counts what the relay sends to a sink, and makes a span of each commit (OpenTelemetry).

messaging.client.sent.messages, efo.relay.dropped, efo.sink.retries, and the span `send TOPIC`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanKind, Tracer

from efo.errors import EfoError
from efo.telemetry.instruments import SCHEMA_URL
from efo.telemetry.spans import CurrentSpan
from efo.telemetry.tracing import NO_SPAN

NAME: Final = "messaging.client.sent.messages"


class SinkMeter:
    """Measures one sink.

    `system`: the value of `messaging.system`. `topic`: the value of `messaging.destination.name`. `tracer`: makes the
    spans; None: no spans.
    """

    def __init__(self, system: str, topic: str, meter_provider: MeterProvider, tracer: Tracer | None = None) -> None:
        meter = meter_provider.get_meter("efo.service", schema_url=SCHEMA_URL)
        self._sent = meter.create_counter(NAME, "{message}", "Records that the relay sent to its sink.")
        self._retries = meter.create_counter(
            "efo.sink.retries", "{retry}", "Commits and openings of the sink that failed and are tried again, by error."
        )
        self._dropped = meter.create_counter(
            "efo.relay.dropped", "{record}", "Records that the function of [relay] transform dropped."
        )
        self._tracer = tracer
        self._attributes = {"messaging.system": system, "messaging.destination.name": topic}

    def retried(self, error: EfoError) -> None:
        """Count a failure that is tried again."""
        self._retries.add(1, self._attributes | {"error.type": error.error_type})

    def dropped(self, records: int) -> None:
        """Count records that the transform dropped."""
        self._dropped.add(records, self._attributes)

    @contextmanager
    def commit(self, records: int) -> Iterator[None]:
        """Count the records of a commit, with an `error.type` if it was given up; its span includes its retries."""
        attributes = {**self._attributes, "messaging.operation.name": "send"}
        try:
            with self._span(records, attributes):
                yield
        except EfoError as error:
            self._sent.add(records, attributes | {"error.type": error.error_type})
            raise
        self._sent.add(records, attributes)

    def _span(self, records: int, attributes: dict[str, str]) -> AbstractContextManager[object]:
        if self._tracer is None:
            return NO_SPAN
        topic = attributes["messaging.destination.name"]
        of_span: dict[str, str | int] = {
            **attributes,
            "messaging.operation.type": "send",
            "messaging.batch.message_count": records,
        }
        return CurrentSpan(self._tracer.start_span(f"send {topic}", kind=SpanKind.CLIENT, attributes=of_span))
