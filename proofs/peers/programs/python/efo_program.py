"""efo: `efo.consume` with a handler that reads each record.

`efo`: as a service runs it, with leases in SQLite, checkpoints, and OpenTelemetry's SDK, whose metrics are encoded for
OTLP and then dropped: no collector is there. `efo-bare`: with leases in memory and no observer, to compare with clients
that have neither leases nor metrics.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import trio
from meter import Meter, configuration
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)

import efo

EXPORT_MILLIS = 10_000


class OtlpEncoder(MetricExporter):
    """Encodes metrics as an exporter to a collector does, and drops them."""

    def export(self, metrics_data: MetricsData, *_: Any, **__: Any) -> MetricExportResult:
        encode_metrics(metrics_data).SerializeToString()
        return MetricExportResult.SUCCESS

    def force_flush(self, *_: Any, **__: Any) -> bool:
        return True

    def shutdown(self, *_: Any, **__: Any) -> None:
        pass


def options(config: dict[str, Any], *, bare: bool) -> dict[str, Any]:
    """Return the arguments of `consume` that differ between the variants."""
    if bare:
        return {"leases": "memory:", "observer": lambda _event: None}
    provider = MeterProvider([PeriodicExportingMetricReader(OtlpEncoder(), export_interval_millis=EXPORT_MILLIS)])
    observer = efo.telemetry.OtelObserver(
        stream=config["stream"], application=config["application"], meter_provider=provider
    )
    return {"leases": Path(config["directory"], "leases.sqlite"), "observer": observer}


async def main(*, bare: bool) -> None:
    config = configuration()
    meter = Meter(config)
    detailed = meter.report != "counts"

    async def handle(batch: efo.Batch) -> None:
        size = 0
        for record in batch:
            _key, _number = record.partition_key, record.sequence_number
            size += len(record.data)
        if detailed:
            meter.details([(record.partition_key, record.data) for record in batch])
        meter.add(len(batch), size)

    async def report() -> None:
        while True:
            await trio.sleep(1)
            meter.print_counts()

    async def consume(task_status: trio.TaskStatus[efo.Consumer] = trio.TASK_STATUS_IGNORED) -> None:
        await efo.consume(
            config["stream"],
            handle,
            application=config["application"],
            settings=efo.ConsumerSettings(consumer_name=config["consumer"]),
            endpoint_url=config["endpoint"],
            ca_file=config["ca_file"],
            task_status=task_status,
            **options(config, bare=bare),
        )
        nursery.cancel_scope.cancel()

    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(report)
            consumer = await nursery.start(consume)
            await anext(signals)
            consumer.drain()
    meter.stopped()


if __name__ == "__main__":
    trio.run(lambda: main(bare=sys.argv[1] == "bare"))
