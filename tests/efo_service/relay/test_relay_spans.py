"""The spans of the relay: each commit group is a process span, and the commit to the sink is its child."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from opentelemetry.metrics import NoOpMeterProvider

from efo.model import Batch, Checkpoint, Record
from efo.telemetry import OtelTracing
from efo.telemetry.spans import spans_of
from efo_service.relay.destination import Destination, NoReports
from efo_service.relay.errors import SinkError
from efo_service.relay.measured import SinkMeter
from efo_service.relay.relay import CommitPace, relay_shard
from efo_service.relay.sink import Part
from tests.efo_service.relay.relaying import ONCE
from tests.spans import Traces

SHARD = "shardId-000000000000"
PARENTS = [f"00-0af7651916cd43dd8448eb211c80319c-{number:016x}-01" for number in range(1, 4)]


class FakeShard:
    """Delivers each batch of a group; then the next group, after a second."""

    stream, shard_id, checkpoint = "orders", SHARD, Checkpoint.TRIM_HORIZON
    has_pending = False

    def __init__(self, *groups: list[Batch]) -> None:
        self._groups = groups

    async def __aiter__(self):
        for group in self._groups:
            for batch in group:
                yield batch
            await trio.sleep(1)

    def ack_through(self, batch, index=None) -> None: ...


class FakeSink:
    """Takes 0.1 s for a commit."""

    position = refusal = None

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    @asynccontextmanager
    async def open(self, *_):
        yield self

    def prepare(self, records) -> Part:
        return Part(records, len(records))

    async def commit(self, _parts) -> None:
        await trio.sleep(0.1)
        if self._error is not None:
            raise self._error


def batch(number: int, *parents: str) -> Batch:
    records = tuple(Record(str(number), 1.0, b"payload", "key", tags=(("traceparent", parent),)) for parent in parents)
    return Batch("orders", SHARD, records, str(number), 0, number)


async def relay(traces: Traces, shard: FakeShard, sink: FakeSink) -> None:
    tracing = OtelTracing(tracer_provider=traces.provider)
    tracer = traces.provider.get_tracer("efo")
    meter = SinkMeter("kafka", "t", NoOpMeterProvider(), tracer)
    reports = NoReports()
    reports.commit = meter.commit
    spans = spans_of(tracing, stream="orders", application="app", consumer=None, server_address=None)
    await relay_shard(shard, Destination(sink, ONCE, reports), pace=CommitPace(0.05), spans=spans)


async def test_each_commit_group_is_a_process_span_around_its_commit(autojump_clock):
    traces = Traces()
    groups = [batch(0, PARENTS[0]), batch(1, PARENTS[1], PARENTS[1])], [batch(2, PARENTS[2])]
    await relay(traces, FakeShard(*groups), FakeSink())
    first, second = traces.ended("process orders")
    sent = traces.ended("send t")
    assert [send.parent.span_id for send in sent] == [first.context.span_id, second.context.span_id]
    counts = [span.attributes["messaging.batch.message_count"] for span in (first, second, *sent)]
    assert counts == [3, 1, 3, 1]
    assert [[f"{link.context.span_id:016x}" for link in span.links] for span in (first, second)] == [
        ["0000000000000001", "0000000000000002"],
        ["0000000000000003"],
    ]
    assert first.attributes["messaging.destination.partition.id"] == SHARD


async def test_a_commit_that_fails_for_good_fails_both_spans(autojump_clock):
    traces = Traces()
    with pytest.raises(SinkError):
        await relay(traces, FakeShard([batch(0, PARENTS[0])]), FakeSink(SinkError("the payload")))
    spans = traces.ended("process orders") + traces.ended("send t")
    assert [span.attributes["error.type"] for span in spans] == [SinkError.error_type] * 2
    assert not [span for span in spans if "the payload" in span.to_json()]


async def test_records_that_are_never_committed_have_a_span_that_was_cancelled(autojump_clock):
    traces = Traces()
    shard = FakeShard([batch(0, PARENTS[0])], [batch(1, PARENTS[1], PARENTS[2])])
    with trio.move_on_after(1.01):  # the second group waits for its commit
        await relay(traces, shard, FakeSink())
    committed, cancelled = traces.ended("process orders")
    assert "error.type" not in committed.attributes
    assert cancelled.attributes["error.type"] == "cancelled"
    assert cancelled.attributes["messaging.batch.message_count"] == 2


async def test_records_behind_a_commit_that_fails_have_a_span_that_was_cancelled(autojump_clock):
    class Steady(FakeShard):
        async def __aiter__(self):
            for number, parent in enumerate(PARENTS):
                yield batch(number, parent)
                await trio.sleep(0.06)

    traces = Traces()
    with pytest.raises(SinkError):
        await relay(traces, Steady(), FakeSink(SinkError("")))
    assert [span.attributes["error.type"] for span in traces.ended("process orders")] == [
        SinkError.error_type,
        "cancelled",
    ]
