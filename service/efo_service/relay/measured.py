"""A sink that counts what goes through it (OpenTelemetry: messaging.client.sent.messages)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from opentelemetry.metrics import Counter, MeterProvider

from efo.errors import EfoError
from efo.model import Batch, Checkpoint, Record
from efo.telemetry.instruments import SCHEMA_URL
from efo_service.relay.sink import ShardSink, Sink

NAME: Final = "messaging.client.sent.messages"


class MeasuredSink:
    """Does what `sink` does, and counts the records of each commit, or of each failed one by its `error.type`.

    `system`: the value of `messaging.system`. `topic`: that of `messaging.destination.name`.
    """

    def __init__(self, sink: Sink, *, system: str, topic: str, meter_provider: MeterProvider) -> None:
        meter = meter_provider.get_meter("efo.service", schema_url=SCHEMA_URL)
        self._counter = meter.create_counter(NAME, "{message}", "Records that the relay handed to its sink.")
        self._sink = sink
        self._attributes = {
            "messaging.system": system,
            "messaging.destination.name": topic,
            "messaging.operation.name": "send",
        }

    def open(self, stream: str, shard_id: str) -> AbstractAsyncContextManager[ShardSink]:
        """Open a shard's way in. Entering raises SinkError."""
        return self._open(stream, shard_id)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str) -> AsyncIterator[ShardSink]:
        async with self._sink.open(stream, shard_id) as shard_sink:
            yield _MeasuredShardSink(shard_sink, self._counter, self._attributes)


class _MeasuredShardSink:
    """One shard's way in; see ShardSink."""

    def __init__(self, sink: ShardSink, counter: Counter, attributes: dict[str, str]) -> None:
        self._sink = sink
        self._counter = counter
        self._attributes = attributes

    @property
    def position(self) -> Checkpoint | None:
        return self._sink.position

    @property
    def pending_records(self) -> int:
        return self._sink.pending_records

    @property
    def pending_bytes(self) -> int:
        return self._sink.pending_bytes

    def refusal(self, record: Record) -> str | None:
        return self._sink.refusal(record)

    def write(self, batch: Batch) -> None:
        self._sink.write(batch)

    async def commit(self) -> None:
        # A commit takes the open group before it first waits: what is pending now is what it sends.
        records = self._sink.pending_records
        try:
            await self._sink.commit()
        except EfoError as error:
            self._counter.add(records, self._attributes | {"error.type": error.error_type})
            raise
        self._counter.add(records, self._attributes)
