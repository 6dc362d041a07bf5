"""Starts a Spark session on this machine: quick to start, quiet, and in need of no network."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from efo_service.spark.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # As many tasks as cores: a shuffle of 200 tasks, Spark's default, takes seconds for nothing.
    "spark.sql.shuffle.partitions": "2",
    # A query that has nothing to do says so seldom: the reports are for batches.
    "spark.sql.streaming.noDataProgressEventInterval": "3600000",
}
"""What a session on one machine differs in from Spark's defaults."""
FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""Java's option to compile quickly, and never well."""


def class_archive(java: Java) -> Path:
    """Return where the archive of Spark's loaded classes is for this Java and this PySpark.

    With it a session starts in a third of the time. `python -m efo_service.spark.archive` makes it.
    """
    from pyspark import __version__  # noqa: PLC0415 - pyspark is slow to import and not always there

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
    """Run a session, and stop it and its Java in the end.

    `name`: shown as the application's. `quick`: for short runs, use the first of Java's compilers only, which is up
    some seconds sooner, and soon three times slower. `java_options`: instead of ours. `jars`: besides Spark's own.
    `options`: more of its configuration, which wins.
    Raises JavaMissingError, before anything is started.
    """
    java = find_java()
    os.environ["SPARK_WORKER_PYTHON"] = sys.executable
    # For sources that are found without registration, Java takes the driver's Python (PythonUtils.defaultPythonExec).
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see class_archive

    logging = Path(__file__).with_name("log4j2.properties")
    driver = f"{java_options or _start(java, quick=quick)} -Dlog4j2.configurationFile={logging.as_uri()}"
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**LOCAL, "spark.driver.extraJavaOptions": driver, **options}.items():
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
            _end_java()


def worker_python() -> str:
    """Return what starts Python workers: see there. Or Python itself, where an installer left it without its x bit."""
    script = Path(__file__).with_name("worker-python")
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _start(java: Java, *, quick: bool) -> str:
    archive = class_archive(java)
    options = [FIRST_COMPILER] if quick else []
    if archive.exists():
        options += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]
    return " ".join(options)


def _end_java() -> None:
    """End the Java process that PySpark started, and wait for it: it would outlive the session."""
    from pyspark import SparkContext  # noqa: PLC0415 - see class_archive

    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark has no public way
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - the same
