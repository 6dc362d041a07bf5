"""`efo pipeline`: Spark over the log."""

from __future__ import annotations

import json
import signal
import sys
import threading
from dataclasses import asdict
from importlib.util import find_spec
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from service.commands.options import ConfigFile, Json
from service.config import Settings
from service.config_file import load
from service.errors import UnavailableError
from service.spark.pipeline import PipelineSettings, run_pipeline


def pipeline(
    *,
    config: ConfigFile = None,
    available_now: Annotated[
        bool | None, Parameter(negative="", help="Read what is there now, then stop; else [pipeline] available_now.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the Spark pipeline: the log's records to Parquet, and counts per time window and key group."""
    settings = _settings(load(config), available_now=available_now)
    if find_spec("pyspark") is None:
        raise UnavailableError("Spark is not installed beside efo: pip install 'efo[service,spark]'")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    tell = _tell_json if as_json else _tell
    result = run_pipeline(settings, on_progress=tell, stop=stop)
    tell({"result": asdict(result)})


def _settings(settings: Settings, *, available_now: bool | None) -> PipelineSettings:
    spark = settings.pipeline
    return PipelineSettings(
        log=settings.relay.directory,
        topic=settings.topic,
        output=spark.output,
        checkpoint=spark.checkpoint,
        available_now=spark.available_now if available_now is None else available_now,
        trigger_seconds=spark.trigger_seconds,
        window_seconds=spark.window_seconds,
        watermark_seconds=spark.watermark_seconds,
        key_groups=spark.key_groups,
        master=spark.master,
    )


def _tell_json(progress: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(progress) + "\n")
    sys.stdout.flush()


def _tell(progress: dict[str, Any]) -> None:
    console = Console(highlight=False)
    match progress:
        case {"query": name, "batch_id": batch, "rows": rows, "rows_total": total, "seconds": seconds}:
            console.print(f"{name}: batch {batch}, {rows:,} rows in {seconds:.1f} s, {total:,} in all")
        case {"waiting_for": topic, "log": log}:
            console.print(f"waiting for the topic {topic} in {log}")
        case {"result": {"rows": rows, "stopped": stopped}}:
            totals = ", ".join(f"{count:,} rows of {name}" for name, count in rows.items()) or "nothing new"
            console.print(f"{'stopped' if stopped else 'done'}: {totals}")
        case _:
            console.print_json(data=progress)
