"""`efo pipeline`: runs the Spark pipeline."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from efo_service.commands.options import ConfigFile, Json, StreamName
from efo_service.commands.output import write_line
from efo_service.config.loading import load
from efo_service.config.settings import Settings
from efo_service.errors import UnavailableError
from efo_service.factories.pipeline import pipeline_settings
from efo_service.spark.pipeline.metrics import PipelineMetrics
from efo_service.spark.pipeline.pipeline import run_pipeline
from efo_service.spark.pipeline.progress import Progress
from efo_service.telemetry.sdk import telemetry
from efo_service.web.metrics import metrics_served
from efo_service.web.security.access import Access
from efo_service.web.security.guard import Guard
from efo_service.web.status import PipelineStatus


def pipeline(
    *,
    config: ConfigFile = None,
    stream: StreamName = None,
    available_now: Annotated[
        bool | None,
        Parameter(negative="", help="Stop after reading the available records. Default: [pipeline] available_now."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the Spark pipeline: write the relayed records to Parquet, and count them per time window and key group."""
    settings = load(config, stream)
    spark_settings = pipeline_settings(settings, available_now=available_now)
    if find_spec("pyspark") is None:
        raise UnavailableError("PySpark is not installed: pip install 'efo[service,spark]'")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    report = _report_json if as_json else _report
    with _metrics(settings) as measure:

        def on_progress(progress: Progress) -> None:
            report(progress)
            measure(progress)

        result = run_pipeline(spark_settings, on_progress=on_progress, stop=stop)
    report({"result": asdict(result)})


@contextmanager
def _metrics(settings: Settings) -> Iterator[Callable[[Progress], None]]:
    """Export metrics while the pipeline runs: by OTLP if its endpoint is set, and for Prometheus on metrics_port.

    /status is on that port too, guarded by the tokens of [service].

    Yields the function that takes progress reports. Raises UnavailableError if the port is taken.
    """
    status = PipelineStatus({"reader": settings.pipeline.reader, "topic": settings.topic})
    with telemetry(settings.pipeline.reader) as sdk, ExitStack() as stack:
        if port := settings.pipeline.metrics_port:
            guard = Guard(Access(*settings.service.tokens))
            served = metrics_served(sdk.registry, settings.service.host, port, status=(guard, status.status))
            try:
                stack.enter_context(served)
            except UnavailableError as error:
                why = getattr(error.__cause__, "strerror", None) or error
                raise UnavailableError(f"[pipeline] metrics_port {port}: {why}: choose another") from error
        metrics = PipelineMetrics(sdk.meter_provider)

        def measure(progress: Progress) -> None:
            metrics(progress)
            status(progress)

        yield measure


def _report_json(progress: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(progress) + "\n")
    sys.stdout.flush()


def _report(progress: dict[str, Any]) -> None:
    match progress:
        case {"query": name, "batch_id": batch, "rows": rows, "rows_written": written, "seconds": seconds, "lag": lag}:
            suffix = f", lag {lag:,}" if lag else ""
            write_line(f"{name}: batch {batch}, {rows:,} rows read, {written:,} written in {seconds:.1f} s{suffix}")
        case {"waiting_for": topic, "log": log, "because": because}:
            write_line(f"waiting for topic {topic} in {log}{f': {because}' if because else ''}")
        case {"started_again": name, "because": because}:
            write_line(f"{name} is restarted: {because}")
        case {"result": {"rows_written": rows, "stopped": stopped}}:
            totals = ", ".join(f"{count:,} rows of {name} written" for name, count in rows.items()) or "no new records"
            write_line(f"{'stopped' if stopped else 'done'}: {totals}")
        case _:
            Console(highlight=False).print_json(data=progress)
