"""The spans of a consumer: what each has, what it is linked to, and what is current while a handler runs."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys

import pytest
import trio
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode, get_current_span

from efo import FailurePolicy, Handler, events
from efo.errors import ConfigurationError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Record
from efo.settings import ConsumerSettings
from efo.telemetry import OtelTracing, TraceContext
from efo.telemetry.spans import MAX_LINKS, spans_of
from efo.telemetry.tracing import open_spans
from efo.testing import FakeKinesis
from tests.spans import Traces
from tests.workers import open_worker

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
COMMON = {
    "messaging.system": "aws.kinesis",
    "messaging.destination.name": "orders",
    "messaging.consumer.group.name": "app",
    "messaging.destination.subscription.name": "app",
}
NAMES = {"stream": "orders", "application": "app", "consumer": None, "server_address": "host"}


def spans(traces: Traces, **options):
    return spans_of(OtelTracing(tracer_provider=traces.provider, **options), **NAMES)


@pytest.fixture
def traces():
    return Traces()


def record(*tags: tuple[str, str]) -> Record:
    return Record("1", 1.0, b"payload", "key", tags=tags)


def test_a_subscribe_call_is_a_span_of_its_handshake(traces):
    observe = spans(traces)
    observe(events.SubscribeAttempted("s-0", 2.0, 0.25, None))
    observe(events.SubscribeAttempted("s-0", 2.0, 0.25, "throttled", "the text may quote a request"))
    good, bad = traces.ended("subscribe orders")
    assert good.attributes == COMMON | {
        "messaging.operation.name": "subscribe",
        "messaging.operation.type": "receive",
        "messaging.destination.partition.id": "s-0",
        "server.address": "host",
    }
    assert (good.kind, good.status.status_code, good.end_time - good.start_time) == (
        SpanKind.CLIENT,
        StatusCode.UNSET,
        250_000_000,
    )
    assert (bad.status.status_code, bad.attributes["error.type"]) == (StatusCode.ERROR, "throttled")
    assert [(event.name, dict(event.attributes)) for event in bad.events] == [
        ("exception", {"exception.type": "throttled"})
    ]


def test_a_write_of_checkpoints_is_a_span_and_other_calls_of_the_store_are_none(traces):
    observe = spans(traces)
    observe(events.LeaseStoreCalled("checkpoint", "s-0", 0.25))
    observe(events.LeaseStoreCalled("checkpoint", "", 0.25, "lease_store_unavailable", 7))
    for operation in ("renew", "list", "take"):
        observe(events.LeaseStoreCalled(operation, "s-0", 0.25))
    one, several = traces.exporter.get_finished_spans()
    assert one.name == several.name == "checkpoint orders"
    assert one.attributes == COMMON | {
        "messaging.operation.name": "checkpoint",
        "messaging.operation.type": "settle",
        "messaging.destination.partition.id": "s-0",
        "efo.lease.count": 1,
    }
    assert (several.attributes["efo.lease.count"], several.attributes["error.type"]) == (7, "lease_store_unavailable")
    assert "messaging.destination.partition.id" not in several.attributes


def test_a_process_span_is_linked_once_to_each_trace_of_its_records(traces):
    other = PARENT.replace("b7ad", "c7ad")
    records = [record(("traceparent", parent)) for parent in (PARENT, other, PARENT, "not a trace")]
    with spans(traces).of_shard("s-0").of_batch(records):
        pass
    (span,) = traces.ended("process orders")
    assert [f"00-{link.context.trace_id:032x}-{link.context.span_id:016x}-01" for link in span.links] == [PARENT, other]
    assert span.attributes["messaging.batch.message_count"] == 4
    assert span.parent is None


def test_a_process_span_is_current_in_its_block_alone(traces):
    with spans(traces).of_shard("s-0").of_batch([record()]):
        assert get_current_span().is_recording()
    assert not get_current_span().get_span_context().is_valid


@pytest.mark.parametrize(
    ("fails", "expected"), [(False, "cancelled"), (True, "ValueError")], ids=["cancelled", "failed"]
)
async def test_the_error_of_a_nursery_in_its_block_is_what_happened_and_not_a_group(traces, fails, expected):
    async def fail() -> None:
        if fails:
            raise ValueError

    async def process() -> None:
        with spans(traces).of_shard("s-0").of_group():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                nursery.start_soon(fail)

    with trio.CancelScope() as scope, contextlib.suppress(ExceptionGroup):
        if not fails:
            scope.cancel()
        await process()
    (span,) = traces.ended("process orders")
    assert span.attributes["error.type"] == expected


def test_a_bounded_number_of_records_is_searched_for_traces_and_none_for_a_span_that_is_not_sampled():
    searched = []

    def extract(found: Record) -> TraceContext:
        searched.append(found)
        return TraceContext(f"00-0af7651916cd43dd8448eb211c80319c-{len(searched):016x}-01")

    traces = Traces()
    span = spans(traces, extract=extract).of_shard("s-0").of_batch([record()] * 100)
    span.add([record()] * 1000)
    span.add([record()] * 1000)
    with span:
        pass
    (ended,) = traces.ended("process orders")
    assert (len(searched), len(ended.links)) == (MAX_LINKS, MAX_LINKS)
    assert ended.attributes["messaging.batch.message_count"] == 2100
    assert ended.attributes["efo.batch.unsearched"] == 2100 - MAX_LINKS
    with spans(Traces(sampler=ALWAYS_OFF), extract=extract).of_shard("s-0").of_batch([record()]):
        pass
    assert len(searched) == MAX_LINKS


def test_beyond_the_limit_of_a_second_batches_have_no_span_and_the_next_span_counts_them(traces):
    now = 5.0
    tracing = OtelTracing(tracer_provider=traces.provider, batch_spans_per_second=2)
    of_both = spans_of(tracing, **NAMES, clock=lambda: now)
    shard, other = of_both.of_shard("s-0"), of_both.of_shard("s-1")

    def process(times: int, shard=shard) -> list[bool]:
        found = [shard.of_batch([record()]) for _ in range(times)]
        for span in found:
            with span or contextlib.nullcontext():
                pass
        return [span is not None for span in found]

    assert process(5) == [True, True, False, False, False]
    assert process(1, other) == [True]  # each shard has its own limit
    now += 1
    assert process(3) == [True, True, False]
    assert [span.attributes.get("efo.batch.omitted") for span in traces.ended("process orders")] == [
        None, None, None, 3, None,
    ]  # fmt: skip


def test_a_limit_that_is_no_count_is_refused():
    with pytest.raises(ConfigurationError, match="batch_spans_per_second=0: expected 1 or more"):
        OtelTracing(batch_spans_per_second=0)


def test_an_extractor_that_fails_makes_no_link_and_stops_nothing(traces):
    def extract(found: Record) -> TraceContext:
        raise ValueError(found.data)

    with spans(traces, extract=extract).of_shard("s-0").of_batch([record()]):
        pass
    (span,) = traces.ended("process orders")
    assert (span.links, span.status.status_code) == ((), StatusCode.UNSET)
    assert span.attributes["efo.batch.extract_failures"] == 1


@pytest.mark.parametrize("provider", [None, NoOpTracerProvider()], ids=["no global provider", "disabled"])
def test_without_a_provider_there_are_no_spans(provider):
    assert open_spans(OtelTracing(tracer_provider=provider), **NAMES) is None


def test_without_opentelemetry_it_is_not_imported():
    code = (
        "import sys; from efo.telemetry.tracing import open_spans;"
        "assert open_spans(None, stream='s', application='a', consumer=None, server_address=None) is None;"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_global_provider_is_used():
    code = (
        "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider;"
        "from efo.telemetry.tracing import open_spans;"
        "trace.set_tracer_provider(TracerProvider());"
        "assert open_spans(None, stream='s', application='a', consumer=None, server_address=None) is not None"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- a whole consumer --------------------------------------------------------------------------------------


async def consume(traces: Traces, *blobs: bytes, seconds: float = 20.0, **handler: object) -> None:
    """Read these records of one shard with a handler."""
    extract = handler.pop("extract", None)
    async with FakeKinesis() as fake:
        fake.create_stream("orders", shards=1)
        fake.put_many("orders", [("key", blob) for blob in blobs])
        async with (
            open_worker(
                fake.kinesis("orders"),
                MemoryLeaseStore(),
                ConsumerSettings(),
                tracing=OtelTracing(tracer_provider=traces.provider, extract=extract),
                rng=random.Random(1),
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            reader = handler.pop("reader", None) or Handler(rng=random.Random(1), **handler)
            nursery.start_soon(consumer.run, reader)
            await trio.sleep(seconds)
            consumer.drain()


async def test_the_spans_of_a_handler_are_children_of_the_process_span(autojump_clock, traces):
    tracer = traces.provider.get_tracer("application")

    async def handle(batch) -> None:
        with tracer.start_as_current_span("work"):
            await trio.sleep(1)

    def extract(found: Record) -> TraceContext | None:
        return TraceContext(found.data.decode()) if found.data.startswith(b"00-") else None

    await consume(traces, PARENT.encode(), b"2", handler=handle, extract=extract)
    (process,), (work,) = traces.ended("process orders"), traces.ended("work")
    assert work.parent.span_id == process.context.span_id
    assert work.context.trace_id == process.context.trace_id
    assert process.kind is SpanKind.CONSUMER
    assert process.attributes == COMMON | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.partition.id": "shardId-000000000000",
        "messaging.batch.message_count": 2,
    }
    (link,) = process.links
    assert f"{link.context.span_id:016x}" in PARENT
    assert len(traces.ended("subscribe orders")) == 1
    assert len(traces.ended("checkpoint orders")) >= 1


async def test_a_batch_has_one_span_however_often_its_handler_is_called(autojump_clock, traces):
    seen = []

    async def handle(record, _batch) -> None:
        seen.append(get_current_span().get_span_context().span_id)
        await trio.lowlevel.checkpoint()

    await consume(traces, b"1", b"2", b"3", record_handler=handle)
    (process,) = traces.ended("process orders")
    assert seen == [process.context.span_id] * 3
    assert process.attributes["messaging.batch.message_count"] == 3


async def test_each_key_has_a_span_of_its_own_with_several_keys_at_once(autojump_clock, traces):
    seen = []

    async def handle(batch) -> None:
        await trio.sleep(1)
        seen.append(get_current_span().get_span_context().span_id)

    await consume(traces, b"1", b"2", handler=handle, key_concurrency=4)
    processes = traces.ended("process orders")
    assert seen == [span.context.span_id for span in processes]
    assert sum(span.attributes["messaging.batch.message_count"] for span in processes) == 2


async def test_a_failure_is_an_event_and_a_retry_that_succeeds_is_no_error(autojump_clock, traces):
    failures = [ValueError("the payload")]

    async def handle(batch) -> None:
        await trio.lowlevel.checkpoint()
        if failures:
            raise failures.pop()

    await consume(traces, b"1", handler=handle, on_error=FailurePolicy(attempts=3))
    (process,) = traces.ended("process orders")
    (event,) = process.events
    assert dict(event.attributes) == {
        "exception.type": "ValueError",
        "efo.failure.attempt": 1,
        "efo.failure.action": "retry",
    }
    assert process.status.status_code is StatusCode.UNSET


async def test_a_record_that_is_skipped_fails_its_span_without_its_payload(autojump_clock, traces):
    async def handle(batch) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("the payload")

    await consume(traces, b"1", handler=handle, on_error=FailurePolicy(attempts=1, then="skip"))
    (process,) = traces.ended("process orders")
    assert (process.status.status_code, process.attributes["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert "the payload" not in process.to_json()


async def test_an_exception_that_stops_everything_fails_its_span(autojump_clock, traces):
    async def handle(batch) -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("the payload")

    with pytest.raises(KeyError):
        await consume(traces, b"1", handler=handle)
    (process,) = traces.ended("process orders")
    assert [dict(event.attributes) for event in process.events] == [{"exception.type": "KeyError"}]
    assert (process.status.status_code, process.attributes["error.type"]) == (StatusCode.ERROR, "KeyError")
    assert "the payload" not in process.to_json()


async def test_a_reader_of_its_own_makes_its_spans_with_process_span(autojump_clock, traces):
    async def read(shard) -> None:
        async for batch in shard:
            with shard.process_span(batch):
                await trio.sleep(1)
            shard.ack(batch)

    await consume(traces, b"1", reader=read)
    (process,) = traces.ended("process orders")
    assert process.attributes["messaging.batch.message_count"] == 1


async def test_a_process_span_starts_a_trace_of_its_own(autojump_clock, traces):
    async def handle(batch) -> None:
        await trio.lowlevel.checkpoint()

    with traces.provider.get_tracer("application").start_as_current_span("main"):
        await consume(traces, b"1", handler=handle)
    (process,) = traces.ended("process orders")
    assert process.parent is None
