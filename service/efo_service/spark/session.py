"""Starts a local Spark session that starts fast, logs little and needs no network."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from efo.deserializers.compressed import MAX_SIZE
from efo_service.spark.java import Java, find_java
from efo_service.spark.workers import worker_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_OPTIONS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # As many tasks as cores. Spark's default of 200 tasks per shuffle only costs seconds.
    "spark.sql.shuffle.partitions": "2",
    # Parquet's writer looks at its size after so many rows, and each may be megabytes. If they are small, it waits.
    "spark.hadoop.parquet.page.size.row.check.min": "1",
    # Only micro-batches are of interest, so an idle query reports rarely.
    "spark.sql.streaming.noDataProgressEventInterval": "3600000",
}
"""Where a local session differs from Spark's defaults."""
_AVRO_LIMITS: Final = {"collectionItems": 1_000_000, "bytes": MAX_SIZE, "string": MAX_SIZE}
"""What a value may claim before Avro's Java library makes room for it: five bytes that claim two gigabytes end Java."""
C1_ONLY: Final = "-XX:TieredStopAtLevel=1"
"""The Java option for the C1 compiler only: it compiles fast, and the code stays slow."""


def class_archive(java: Java) -> Path:
    """Return the path of the archive of Spark's loaded classes for this Java and this PySpark.

    With the archive a session starts in a third of the time. `python -m efo_service.spark.archive` creates it.
    """
    from pyspark import __version__  # noqa: PLC0415 - pyspark is slow to import and optional

    key = hashlib.sha256(java.build.encode()).hexdigest()[:12]
    return Path(sys.prefix) / "share" / "efo" / f"spark-{__version__}-java-{java.version}-{key}.jsa"


@contextmanager
def spark_session(
    name: str,
    *,
    master: str = "local[2]",
    quick: bool = False,
    java_options: str | None = None,
    jars: Sequence[Path] = (),
    options: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SparkSession]:
    """Run a session; stop it and its Java process at the end.

    `name`: the application's name. `quick`: for short runs, use Java's C1 compiler only. The session is ready some
    seconds earlier; once warm, it is three times slower. `java_options`: replace efo's. `jars`: in addition to Spark's.
    `options`: Spark configuration, which overrides efo's.
    Raises JavaMissingError before anything is started.
    """
    java = find_java()
    os.environ.update(worker_environment())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see class_archive

    log_config = Path(__file__).with_name("log4j2.properties")
    driver_options = " ".join(
        [
            java_options or _default_java_options(java, quick=quick),
            f"-Dlog4j2.configurationFile={log_config.as_uri()}",
            *(f"-Dorg.apache.avro.limits.{name}.maxLength={limit}" for name, limit in _AVRO_LIMITS.items()),
        ]
    )
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**LOCAL_OPTIONS, "spark.driver.extraJavaOptions": driver_options, **options}.items():
        builder = builder.config(key, value)
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        try:
            session.stop()
        finally:
            _stop_java()


def _default_java_options(java: Java, *, quick: bool) -> str:
    archive = class_archive(java)
    options = [C1_ONLY] if quick else []
    if archive.exists():
        options += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]
    return " ".join(options)


def _stop_java() -> None:
    """Stop the Java process that PySpark started, and wait for it: it would outlive the session."""
    from pyspark import SparkContext  # noqa: PLC0415 - see class_archive

    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark has no public API for it
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - the same
