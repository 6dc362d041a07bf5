"""The table formats: their Spark, their jars, and the settings of the pipeline, as docs/tables.md has them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from proofs.local_servers.object_stores import BUCKET, ENVIRONMENT
from proofs.paths import ROOT, TOOLS

INSTALLED: Final = TOOLS / "tables"
Name = Literal["delta", "iceberg"]
SPARK: Final[Mapping[Name, str]] = {"delta": "4.2", "iceberg": "4.1"}
"""The newest Spark for which each format has a build."""
CATALOG: Final = "lake"
_S3A: Final = {
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
}
"""How s3a reaches a store that is not AWS's."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tables of a run are. `store`: the URL of an S3 server. `catalog`: of PostgreSQL; Delta needs none."""

    format: Name
    store: str
    catalog: str | None = None

    @property
    def jars(self) -> Path:
        """The directory with the jars of the format, of s3a, and of Kafka's source."""
        return INSTALLED / self.format

    def spark_options(self) -> dict[str, str]:
        """Return the options of the session, without secrets."""
        options = {**_S3A, "spark.hadoop.fs.s3a.endpoint": self.store}
        if self.format == "delta":
            return options | {
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                # As many tasks as cores for reading the table's log; the default of 50 is for large tables.
                "spark.databricks.delta.snapshotPartitions": "2",
            }
        return options | {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{CATALOG}.type": "jdbc",
            f"spark.sql.catalog.{CATALOG}.uri": self._jdbc(),
            f"spark.sql.catalog.{CATALOG}.jdbc.schema-version": "V1",
            f"spark.sql.catalog.{CATALOG}.warehouse": f"s3a://{BUCKET}/warehouse",
        }

    def _jdbc(self) -> str:
        parts = urlsplit(self.catalog or "")
        return f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"

    def secrets(self) -> dict[str, str]:
        """Return the options of the session that are secret, which efo takes from the environment alone."""
        if self.catalog is None:
            return {}
        parts = urlsplit(self.catalog)
        name = f"spark.sql.catalog.{CATALOG}.jdbc"
        return {f"{name}.user": parts.username or "", f"{name}.password": parts.password or ""}

    def environment(self) -> dict[str, str]:
        """Return the environment of a process with this format's Spark: its PySpark goes before the installed one."""
        # `python -m` finds this checkout in the directory where it is started; the pipeline is started elsewhere.
        before = os.environ.get("PYTHONPATH")
        paths = [str(TOOLS / f"spark-{SPARK[self.format]}"), *([before] if before else []), str(ROOT)]
        return {
            **ENVIRONMENT,
            "PYTHONPATH": os.pathsep.join(paths),
            "EFO_PIPELINE__SPARK_OPTIONS": json.dumps(self.secrets()),
        }

    def sink(self, name: str) -> dict[str, str]:
        """Return the settings of [pipeline] that say where it writes; `name`: of this run's tables."""
        base = f"s3a://{BUCKET}/{self.format}/{name}"
        target = {"output": f"{base}/tables"} if self.format == "delta" else {"table": f"{CATALOG}.kinesis.{name}"}
        return {"sink_format": self.format, "checkpoint": f"{base}/checkpoint", **target}

    def pipeline_config(self, name: str) -> str:
        """Return lines for the table [pipeline] of the configuration."""
        options = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in self.spark_options().items())
        sink = [f"{key} = {json.dumps(value)}" for key, value in self.sink(name).items()]
        return "\n".join([*sink, f"spark_options = {{ {options} }}"])


def missing(name: Name) -> str | None:
    """Return what a format needs and is not installed; None if all is."""
    install = "run `make tables-install` (needs Maven and Java 17)"
    if not (TOOLS / f"spark-{SPARK[name]}" / "pyspark").is_dir():
        return f"no PySpark {SPARK[name]} in {TOOLS}: {install}"
    if not any((INSTALLED / name).glob("*.jar")):
        return f"no jars of {name} in {INSTALLED / name}: {install}"
    return None
