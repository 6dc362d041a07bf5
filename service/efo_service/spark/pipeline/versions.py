"""Checks that Spark and the packages of table formats fit each other.

Delta and Iceberg are built for one minor version of Spark each. In another one Spark fails later, with the name of a
Java method that it has not found.
"""

from __future__ import annotations

import re
from typing import Final

from efo.errors import ConfigurationError
from efo_service.spark.pipeline.settings import PipelineSettings

SOURCE_NEEDS: Final = (4, 0)
"""Spark has Python sources, which format("efo") is, since this version."""
LIMIT_NEEDS: Final = (4, 2)
"""Before this version of Spark, a Python source cannot limit a micro-batch."""
_BUILD: Final = re.compile(r"(delta-spark_|iceberg-spark-runtime-)(\d+\.\d+)_2\.\d+")
"""The name of a build, in Maven coordinates and in the name of a jar: its format, and its version of Spark."""


def check_versions(version: str, settings: PipelineSettings) -> None:
    """Raise ConfigurationError if the pipeline cannot run on this Spark.

    `version`: Spark's, such as "4.2.1". Looks at the source, and at the packages and jars that the settings name.
    """
    major, minor, *_ = (int(part) for part in re.findall(r"\d+", version))
    if settings.kafka is None and (major, minor) < SOURCE_NEEDS:
        raise ConfigurationError(
            f'[pipeline] source = "efo" needs Spark {SOURCE_NEEDS[0]}.{SOURCE_NEEDS[1]} or newer, but this is Spark'
            f' {version}: relay to Kafka and set source = "kafka", or install a newer PySpark'
        )
    if settings.kafka is None and settings.max_records is not None and (major, minor) < LIMIT_NEEDS:
        raise ConfigurationError(
            f"[pipeline] max_records needs Spark {LIMIT_NEEDS[0]}.{LIMIT_NEEDS[1]} or newer, but this is Spark"
            f" {version}, in which a Python source cannot limit a micro-batch: remove it, or install a newer PySpark"
        )
    for package in _packages(settings):
        found = _BUILD.search(package)
        if found is not None and found[2] != f"{major}.{minor}":
            raise ConfigurationError(
                f"{package} is built for Spark {found[2]}, but this is Spark {version}: install"
                f" 'pyspark=={found[2]}.*', or use the build for Spark {major}.{minor}, if there is one"
                " (docs/tables.md)"
            )


def _packages(settings: PipelineSettings) -> list[str]:
    """Return the packages in Maven coordinates, and the names of the jars."""
    options = settings.spark_options
    named = [options.get(name, "") for name in ("spark.jars.packages", "spark.jars")]
    return [
        *(part.strip().rpartition("/")[2] for text in named for part in text.split(",")),
        *(jar.name for jar in settings.jars),
    ]
