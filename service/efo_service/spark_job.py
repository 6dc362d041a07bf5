"""The pipeline as a job for spark-submit, on a cluster or elsewhere: it uses spark-submit's session.

    spark-submit --master yarn .../efo_service/spark_job.py --config efo.toml --available-now

Install efo and its requirements where the driver and the executors run. If the job reads the log, put the log on a file
system that all of them can read. The job reports progress as JSON lines on stdout; the last line is the result.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from efo.errors import EfoError
from efo_service.config.loading import load
from efo_service.exit_codes import report
from efo_service.factories.pipeline import pipeline_settings
from efo_service.spark.errors import spark_errors
from efo_service.spark.pipeline.pipeline import run_in_session
from efo_service.spark.pipeline.versions import check_versions


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="spark_job.py",
        description="Run efo's pipeline in the session that spark-submit starts.",
        epilog="example: spark-submit --master yarn spark_job.py --config efo.toml --available-now",
    )
    parser.add_argument("--config", type=Path, help="the TOML file; EFO_<SECTION>__<KEY> variables override it")
    parser.add_argument("--stream", help="the stream, by its name in [streams], if the file has several")
    parser.add_argument(
        "--available-now", action="store_true", default=None, help="read the records that exist now, then stop"
    )
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = pipeline_settings(load(options.config, options.stream), available_now=options.available_now)
        with spark_errors("the job"):
            from pyspark.sql import SparkSession  # noqa: PLC0415 - spark_errors reports it if it is missing

            spark = (
                SparkSession.builder.appName("efo pipeline").config("spark.sql.session.timeZone", "UTC").getOrCreate()
            )
            check_versions(spark.version, settings)
            result = run_in_session(spark, settings, on_progress=_print_json, stop=stop)
    except EfoError as error:
        return report(error)
    _print_json({"result": asdict(result)})
    return 0


def _print_json(progress: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(progress) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
