"""Reads the tables of a run with the Spark that wrote them: `python -m proofs.e2e.tables.read CONFIG OUTPUT`.

Writes position, key and value of each row into a Parquet file, and prints counts as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path

import pyarrow.parquet as pq

from efo_service.spark.session import spark_session


def main(config: str, output: str) -> None:
    """Read all rows. Of the configuration it reads [pipeline] alone: the stream of the run has ended."""
    settings = tomllib.loads(Path(config).read_text())["pipeline"]
    options = settings["spark_options"] | json.loads(os.environ["EFO_PIPELINE__SPARK_OPTIONS"])
    jars = sorted(Path(settings["jars"]).glob("*.jar"))
    with spark_session("efo read", quick=True, jars=jars, options=options) as spark:
        if "table" in settings:
            records = spark.table(f"{settings['table']}_records")
            commits = spark.table(f"{settings['table']}_records.snapshots").count()
        else:
            path = f"{settings['output']}/records"
            records = spark.read.format(settings["sink_format"]).load(path)
            commits = spark.sql(f"describe history delta.`{path}`").count()
        pq.write_table(records.select("partition", "offset", "key", "value").toArrow(), output)
        partitions = records.select("date", "hour").distinct().count()
        print(json.dumps({"spark": spark.version, "commits": commits, "partitions": partitions}))  # noqa: T201 - a command


if __name__ == "__main__":
    main(*sys.argv[1:])
