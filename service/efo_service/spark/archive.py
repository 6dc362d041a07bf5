"""Creates the archive of Spark's loaded classes (Java CDS): `python -m efo_service.spark.archive`.

It runs the pipeline once on a tiny log; Java then writes the classes that it loaded into the archive. It is meant for
an image or an environment that is installed once and started often: a session then starts in a third of the time.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from efo.errors import EfoError
from efo.model import Record
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.spark.java import find_java
from efo_service.spark.pipeline.pipeline import run_in_session
from efo_service.spark.pipeline.settings import PipelineSettings
from efo_service.spark.session import C1_ONLY, class_archive, spark_session

_SAMPLE: Final = Record("1", 1.0, b"value", "key")


def create_archive() -> Path:
    """Create the archive for the Java on this machine, unless it exists, and return its path.

    Raises JavaMissingError, SparkError.
    """
    archive = class_archive(find_java())
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    temporary = archive.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="efo-") as name:
        root = Path(name)
        writer = open_partition(DiskFiles(root / "log"), "sample", "sample", "shardId-000000000000", time.time)
        writer.append([_SAMPLE])
        writer.close()
        settings = PipelineSettings(
            log=root / "log",
            topic="sample",
            output=str(root / "out"),
            checkpoint=str(root / "checkpoint"),
            available_now=True,
        )
        options = f"{C1_ONLY} -XX:ArchiveClassesAtExit={temporary} -Xlog:cds=off"
        with spark_session("efo archive", java_options=options) as spark:
            run_in_session(spark, settings, on_progress=lambda _: None, stop=threading.Event())
    temporary.rename(archive)
    return archive


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{create_archive()}\n")
    except EfoError as error:
        sys.exit(str(error))
