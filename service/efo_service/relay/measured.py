"""A sink around another that counts the records it commits, and makes a span of each commit.

OpenTelemetry: messaging.client.sent.messages, and the span `send TOPIC`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Final

from opentelemetry.metrics import Counter, MeterProvider
from opentelemetry.trace import SpanKind, Tracer

from efo.errors import EfoError
from efo.model import Batch, Checkpoint, Record
from efo.telemetry.instruments import SCHEMA_URL
from efo.telemetry.spans import CurrentSpan
from efo.telemetry.tracing import NO_SPAN
from efo_service.relay.sink import ShardSink, Sink

NAME: Final = "messaging.client.sent.messages"


class SinkRetries:
    """Counts the failures of a sink that are tried again: `efo.sink.retries`, by `error.type`.

    `system`, `topic`: see MeasuredSink, which counts a commit when it has succeeded, or was given up.
    """

    def __init__(self, system: str, topic: str, meter_provider: MeterProvider) -> None:
        meter = meter_provider.get_meter("efo.service", schema_url=SCHEMA_URL)
        self._counter = meter.create_counter(
            "efo.sink.retries", "{retry}", "Commits and openings of the sink that failed and are tried again, by error."
        )
        self._attributes = {"messaging.system": system, "messaging.destination.name": topic}

    def add(self, error: EfoError) -> None:
        """Count a failure."""
        self._counter.add(1, self._attributes | {"error.type": error.error_type})


class MeasuredSink:
    """Passes all calls to `sink`, and counts the records of each commit. Failed commits have an `error.type`.

    `system`: the value of `messaging.system`. `topic`: the value of `messaging.destination.name`. `tracer`: makes a
    span of each commit, with its retries; None: no spans.
    """

    def __init__(
        self, sink: Sink, *, system: str, topic: str, meter_provider: MeterProvider, tracer: Tracer | None = None
    ) -> None:
        meter = meter_provider.get_meter("efo.service", schema_url=SCHEMA_URL)
        self._counter = meter.create_counter(NAME, "{message}", "Records that the relay sent to its sink.")
        self._sink = sink
        self._tracer = tracer
        self._attributes = {
            "messaging.system": system,
            "messaging.destination.name": topic,
            "messaging.operation.name": "send",
        }

    def open(
        self, stream: str, shard_id: str, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AbstractAsyncContextManager[ShardSink]:
        """Open the sink for a shard. Entering raises SinkError."""
        return self._open(stream, shard_id, checkpoint)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str, checkpoint: Checkpoint) -> AsyncIterator[ShardSink]:
        async with self._sink.open(stream, shard_id, checkpoint) as shard_sink:
            yield _MeasuredShardSink(shard_sink, self._counter, self._attributes, self._tracer)


class _MeasuredShardSink:
    """A sink opened for one shard; see ShardSink."""

    def __init__(self, sink: ShardSink, counter: Counter, attributes: dict[str, str], tracer: Tracer | None) -> None:
        self._sink = sink
        self._counter = counter
        self._attributes = attributes
        self._tracer = tracer

    @property
    def position(self) -> Checkpoint | None:
        return self._sink.position

    @property
    def pending_records(self) -> int:
        return self._sink.pending_records

    @property
    def pending_bytes(self) -> int:
        return self._sink.pending_bytes

    def size(self, records: Sequence[Record]) -> int:
        return self._sink.size(records)

    def refusal(self, record: Record) -> str | None:
        return self._sink.refusal(record)

    def write(self, batch: Batch) -> None:
        self._sink.write(batch)

    async def commit(self) -> None:
        # The commit empties the write buffer before it first waits, so it sends exactly the pending records.
        records = self._sink.pending_records
        try:
            with self._span(records):
                await self._sink.commit()
        except EfoError as error:
            self._counter.add(records, self._attributes | {"error.type": error.error_type})
            raise
        self._counter.add(records, self._attributes)

    def _span(self, records: int) -> AbstractContextManager[object]:
        if self._tracer is None:
            return NO_SPAN
        topic = self._attributes["messaging.destination.name"]
        attributes: dict[str, str | int] = {
            **self._attributes,
            "messaging.operation.type": "send",
            "messaging.batch.message_count": records,
        }
        return CurrentSpan(self._tracer.start_span(f"send {topic}", kind=SpanKind.CLIENT, attributes=attributes))
