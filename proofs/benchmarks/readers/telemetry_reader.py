"""What telemetry costs: one consumer that switches it on and off, so that both halves see the same machine.

    python -m proofs.benchmarks.readers.telemetry_reader SERVED CONSUMER SAMPLER SECONDS BLOCKS

Off: no observer, no spans. On: OpenTelemetry metrics, spans with this sampler (always_on, or a ratio) through the batch
processor into an exporter that discards them, and KCL's metrics for CloudWatch. A block has `SLICES` slices of each, in
the order off, on, on, off; while it is on, the metrics are exported once, as every 5 s, and KCL's are taken once. It
prints the quotient of the CPU times per record, on to off, for each block.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, TraceIdRatioBased

import efo
from efo.telemetry.cloudwatch.kcl_metrics import KclMetrics
from efo.telemetry.spans import ShardSpans, Spans, spans_of
from proofs.benchmarks.readers.efo_reader import Discard
from proofs.benchmarks.readers.samples import cpu_seconds

SLICES = 10
NEVER_MILLIS = 3_600_000


class _DiscardSpans(SpanExporter):
    """Takes the spans, and sends them nowhere."""

    def export(self, spans) -> SpanExportResult:
        return SpanExportResult.SUCCESS if spans else SpanExportResult.FAILURE


class Telemetry:
    """An observer that can be switched, and the spans that go with it."""

    def __init__(self, sampler: str) -> None:
        self.is_on = False
        self._reader = PeriodicExportingMetricReader(Discard(), export_interval_millis=NEVER_MILLIS)
        meters = MeterProvider([self._reader])
        sampled = ALWAYS_ON if sampler == "always_on" else TraceIdRatioBased(float(sampler))
        tracers = TracerProvider(sampler=ParentBased(sampled))
        self._providers = meters, tracers
        tracers.add_span_processor(BatchSpanProcessor(_DiscardSpans()))
        spans = spans_of(
            efo.telemetry.OtelTracing(tracer_provider=tracers),
            stream="load",
            application="bench",
            consumer=None,
            server_address=None,
        )
        assert spans is not None
        self._spans: Spans = spans
        self._shard_spans: dict[str, ShardSpans] = {}
        self._kcl = KclMetrics("detailed")
        metrics = efo.telemetry.OtelObserver(stream="load", application="bench", meter_provider=meters)
        self._observe = efo.telemetry.combine_observers(metrics, self._kcl, self._spans)

    def __call__(self, event: efo.events.Event) -> None:
        if self.is_on:
            self._observe(event)

    def switch(self, consumer: efo.Consumer, *, on: bool) -> None:
        self.is_on = on
        for shard_id, shard in consumer._running.items():  # noqa: SLF001 - a service has it on or off for ever
            if on and shard_id not in self._shard_spans:
                self._shard_spans[shard_id] = self._spans.of_shard(shard_id)
            shard._spans = self._shard_spans[shard_id] if on else None  # noqa: SLF001 - as above

    def close(self) -> None:
        for provider in self._providers:
            provider.shutdown()

    def export(self) -> None:
        self._reader.collect()
        self._kcl.take(time.time())


class Counter:
    def __init__(self) -> None:
        self.records = 0
        self.began = trio.Event()

    async def handle(self, batch: efo.Batch) -> None:
        for record in batch:
            record.partition_key, record.sequence_number, len(record.data)
        self.records += len(batch)
        self.began.set()


async def block(telemetry: Telemetry, consumer: efo.Consumer, counter: Counter, seconds: float) -> float:
    """Return CPU time per record with telemetry, divided by that without."""
    cpu, records = {True: 0.0, False: 0.0}, {True: 0, False: 0}
    order = [on for _ in range(SLICES // 2) for on in (False, True, True, False)]
    for index, on in enumerate(order):
        telemetry.switch(consumer, on=on)
        cpu_before, records_before = cpu_seconds(), counter.records
        await trio.sleep(seconds / SLICES)
        if on and index == len(order) // 2:
            telemetry.export()
        cpu[on] += cpu_seconds() - cpu_before
        records[on] += counter.records - records_before
    return (cpu[True] / records[True]) / (cpu[False] / records[False])


async def main() -> None:
    parser = argparse.ArgumentParser(description="Read a stream with and without telemetry.")
    parser.add_argument("served", type=json.loads)
    parser.add_argument("consumer")
    parser.add_argument("sampler")
    parser.add_argument("seconds", type=float)
    parser.add_argument("blocks", type=int)
    options = parser.parse_args()
    (stream,) = options.served["streams"]
    telemetry, counter = Telemetry(options.sampler), Counter()
    opening = efo.open_consumer(
        stream,
        application=options.consumer,
        settings=efo.ConsumerSettings(subscribes_per_second=2000.0),
        region="us-east-1",
        endpoint_url=options.served["url"],
        ca_file=options.served["ca_file"],
        observer=telemetry,
    )
    async with opening as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, efo.Handler(counter.handle))
        await counter.began.wait()
        await block(telemetry, consumer, counter, options.seconds / 2)  # a warm-up
        for _ in range(options.blocks):
            ratio = await block(telemetry, consumer, counter, options.seconds)
            os.write(1, json.dumps({"ratio": ratio}).encode() + b"\n")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
