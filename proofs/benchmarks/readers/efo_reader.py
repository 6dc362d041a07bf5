"""efo as an application uses it: `efo.consume` with leases in SQLite, checkpoints, and OpenTelemetry metrics.

    python -m proofs.benchmarks.readers.efo_reader SERVED CONSUMER [--processes N] [--delays | --columns]

SERVED is the line of JSON that the load server prints. The lease table is in the working directory. The handler reads
key, sequence number and length of the data of every record. `--processes`: read by `efo.consume_in_processes`.
`--delays`: the data of each record is the time at which it was put. `--columns`: the handler takes each batch as
columns of Arrow, and looks at no record.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial

import pyarrow.compute as pc
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)

import efo
from proofs.benchmarks.readers.samples import Sampler

EXPORT_MILLIS = 5000
"""Between two exports, as often as a checkpoint: in each window of a measurement."""

sampler = Sampler()


async def handle(batch: efo.Batch) -> None:
    key: str | None = None
    size, number = 0, ""
    for record in batch:
        key = record.partition_key
        number = record.sequence_number
        size += len(record.data)
    sampler.add(len(batch), size, (key, number), batch.shard_id)


async def handle_timed(batch: efo.Batch) -> None:
    now = time.time()
    sampler.delays_ms += [(now - float(record.data)) * 1000 for record in batch]
    await handle(batch)


async def handle_columns(batch: efo.Batch) -> None:
    columns = batch.to_arrow()
    sampler.add(columns.num_rows, pc.sum(pc.binary_length(columns.column("data"))).as_py(), columns, batch.shard_id)


class Discard(MetricExporter):
    """Takes the metrics, and sends them nowhere."""

    def export(self, metrics_data: MetricsData, *_: object, **__: object) -> MetricExportResult:
        return MetricExportResult.SUCCESS if metrics_data else MetricExportResult.FAILURE

    def force_flush(self, *_: object) -> bool:
        return True

    def shutdown(self, *_: object, **__: object) -> None:
        pass


class Metrics(efo.telemetry.OtelObserver):
    """Feeds a meter provider of its own. In another process it is made anew, since a provider cannot be pickled."""

    def __init__(self) -> None:
        reader = PeriodicExportingMetricReader(Discard(), export_interval_millis=EXPORT_MILLIS)
        super().__init__(stream="load", application="bench", meter_provider=MeterProvider([reader]))

    def __reduce__(self) -> tuple[type[Metrics], tuple[()]]:
        return Metrics, ()


def main() -> None:
    parser = argparse.ArgumentParser(description="Read a stream, and print samples.")
    parser.add_argument("served", type=json.loads)
    parser.add_argument("consumer")
    parser.add_argument("--processes", type=int)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--delays", dest="handler", action="store_const", const=handle_timed, default=handle)
    forms.add_argument("--columns", dest="handler", action="store_const", const=handle_columns)
    options = parser.parse_args()
    consume = efo.consume
    if options.processes:
        consume = partial(efo.consume_in_processes, processes=options.processes)
    (stream,) = options.served["streams"]
    consuming = partial(
        consume,
        stream,
        options.handler,
        application=options.consumer,
        settings=efo.ConsumerSettings(subscribes_per_second=2000.0),
        region="us-east-1",
        endpoint_url=options.served["url"],
        ca_file=options.served["ca_file"],
        observer=Metrics(),
    )
    trio.run(consuming)


if __name__ == "__main__":
    main()
