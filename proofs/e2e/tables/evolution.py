"""Schema evolution and maintenance of a table, in a session of its Spark.

`python -m proofs.e2e.tables.evolution FORMAT STORE CATALOG SERVERS` runs the pipeline for each case over the records
that were added before it; all runs of a table share its checkpoint, as those of one pipeline do. Prints the results as
JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import fastavro

from efo.model import Record
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.spark.errors import SparkError
from efo_service.spark.pipeline.decoding import Decoding, Format
from efo_service.spark.pipeline.kafka import reader_options
from efo_service.spark.pipeline.pipeline import run_in_session
from efo_service.spark.pipeline.settings import PipelineSettings
from efo_service.spark.session import spark_session
from proofs.e2e.kafka.topic import create_topic
from proofs.e2e.tables.formats import CATALOG, Name, Place
from proofs.spark_parity.records import copy, rows_of_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SHARD: Final = "shardId-000000000000"
_STARTED: Final = 1_700_000_000.0
_OTHER_TYPE: Final = 2
"""The version of the schema whose `price` is text, which the column of the table is not."""
_FIRST, _MIXED, _LAST, _MORE = 100, 150, 160, 170
"""The number of records after each step; up to _NEW they have the first schema."""
_NEW: Final = 110


class Topic:
    """A topic of the log, and the same in Kafka if there is a broker. It has one partition."""

    def __init__(self, root: Path, name: str, servers: str) -> None:
        self.root, self.name, self.servers = root, name, servers
        self._records = 0
        if servers:
            create_topic(servers, name, 1)

    def put(self, values: list[bytes]) -> None:
        """Append records."""
        first = self._records
        self._records += len(values)
        writer = open_partition(DiskFiles(self.root), self.name, self.name, _SHARD, time.time)
        writer.append([Record(str(10**20 + first + n), _STARTED + first + n, v, "key") for n, v in enumerate(values)])
        writer.close()
        if self.servers:
            copy(rows_of_topic(self.root, self.name, 0, first), self.servers)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The pipeline of one topic into one table."""

    spark: SparkSession
    place: Place
    topic: Topic

    def run(self, decoding: Decoding, **sink_options: str) -> str | None:
        """Write the available records; return why the table has refused them, None if it has not."""
        kafka, sink = None, self.place.sink(self.topic.name)
        if self.topic.servers:
            kafka = reader_options(KafkaOptions(bootstrap_servers=self.topic.servers), self.topic.name)
        settings = PipelineSettings(
            log=self.topic.root,
            topic=self.topic.name,
            kafka=kafka,
            available_now=True,
            decoding=decoding,
            sink_options=sink_options,
            sink_format=sink["sink_format"],
            output=sink.get("output", ""),
            table=sink.get("table"),
            checkpoint=sink["checkpoint"],
        )
        try:
            run_in_session(self.spark, settings, on_progress=lambda _: None, stop=threading.Event())
        except SparkError as error:
            return str(error)
        return None

    def table(self, query: str) -> DataFrame:
        """Return the table of a query."""
        sink = self.place.sink(self.topic.name)
        if "table" in sink:
            return self.spark.table(f"{sink['table']}_{query}")
        return self.spark.read.format("delta").load(f"{sink['output']}/{query}")

    def rows(self, column: str) -> dict[int, Any]:
        """Return a field of the decoded values, by id. Fails if an id is there twice."""
        found = self.table("records").selectExpr("data.id as id", f"data.{column} as field").collect()
        result = {row.id: row.field for row in found}
        if len(result) != len(found):
            raise AssertionError(f"{len(found)} rows have {len(result)} ids")
        return result

    def maintain(self) -> tuple[int, int]:
        """Compact the table of the records, and delete what is old; return its number of files before and after."""
        before = self.files()
        sink = self.place.sink(self.topic.name)
        if "table" in sink:
            name = f"{sink['table']}_records".removeprefix(f"{CATALOG}.")
            for call in (
                f"rewrite_data_files(table => '{name}', options => map('min-input-files', '2'))",
                f"rewrite_manifests('{name}')",
                f"expire_snapshots(table => '{name}', retain_last => 5)",
            ):
                self.spark.sql(f"call {CATALOG}.system.{call}").collect()
        else:
            self.spark.sql(f"optimize delta.`{sink['output']}/records`").collect()
            self.spark.sql(f"vacuum delta.`{sink['output']}/records`").collect()
        return before, self.files()

    def files(self) -> int:
        """Return the number of data files of the records; Iceberg's are in a table of their own."""
        sink = self.place.sink(self.topic.name)
        if "table" in sink:
            return self.spark.table(f"{sink['table']}_records.files").count()
        return len(self.table("records").inputFiles())

    def quarantined(self) -> list[str]:
        """Return the reasons of the values that could not be decoded."""
        return [row.reason for row in self.table("quarantine").select("reason").collect()]


Encode = Callable[[int, dict[str, Any]], bytes]
"""Returns a value: the version of its schema, from 0, and its fields."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a format. `schemas`: of both versions, then that of _OTHER_TYPE.

    `wrong`: a value of the first version whose `price` does not fit.
    """

    format: Format
    schemas: tuple[str, str, str]
    encode: Encode
    wrong: bytes

    def decoding(self, version: int) -> Decoding:
        """Return how the pipeline reads all versions up to this one."""
        older = self.schemas[:version] if self.format == "avro" and version != _OTHER_TYPE else ()
        return Decoding(self.format, self.schemas[version], older=tuple(reversed(older)))


def _json_values() -> Values:
    return Values(
        "json",
        (
            "id bigint, price double",
            "id bigint, price double, currency string",
            "id bigint, price string, currency string",
        ),
        lambda _version, fields: json.dumps(fields).encode(),
        b'{"id": 1000, "price": "cheap"}',
    )


def _avro_values() -> Values:
    base = [{"name": "id", "type": "long"}, {"name": "price", "type": "double"}]
    currency = {"name": "currency", "type": ["null", "string"], "default": None}
    text = {"name": "price", "type": "string"}
    schemas = [
        {"type": "record", "name": "Order", "fields": fields}
        for fields in (base, [*base, currency], [base[0], text, currency])
    ]

    def encode(version: int, fields: dict[str, Any]) -> bytes:
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, schemas[version], fields)
        return buffer.getvalue()

    first, second, third = (json.dumps(schema) for schema in schemas)
    wrong = encode(2, {"id": 1000, "price": "cheap", "currency": None})
    return Values("avro", (first, second, third), encode, wrong)


def evolve(pipeline: Pipeline, values: Values, merge: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Do the cases; yield the name and the result of each. `merge`: the options by which the table adds columns."""
    put, first, second = pipeline.topic.put, values.decoding(0), values.decoding(1)

    def of(version: int, start: int, end: int) -> list[bytes]:
        more = {"currency": "EUR"} if version else {}
        return [values.encode(version, {"id": n, "price": n / 2, **more}) for n in range(start, end)]

    put([*of(0, 0, _FIRST), values.wrong])
    refused = pipeline.run(first)
    reasons = pipeline.quarantined()
    yield (
        "value_that_does_not_fit",
        {
            "passed": refused is None
            and pipeline.rows("price") == {n: n / 2 for n in range(_FIRST)}
            and len(reasons) == 1,
            "quarantine": reasons,
        },
    )
    put([*of(0, _FIRST, _NEW), *of(1, _NEW, _MIXED)])
    refused = pipeline.run(second)
    yield (
        "new_column_without_merge",
        {
            "passed": refused is not None and len(pipeline.rows("price")) == _FIRST,
            "refused": refused,
        },
    )
    refused = pipeline.run(second, **merge)
    expected = {n: "EUR" if n >= _NEW else None for n in range(_MIXED)}
    yield (
        "new_column",
        {
            "passed": refused is None and pipeline.rows("currency") == expected and len(pipeline.quarantined()) == 1,
            "rows": len(expected),
            "with": merge,
            "refused": refused,
        },
    )
    casts = pipeline.place.format == "delta"
    other = values.encode(_OTHER_TYPE, {"id": _MIXED, "price": f"{_MIXED / 2}", "currency": "EUR"})
    # What a table refuses is read again with the old schema, so there it must be a value that has it.
    put([other] if casts else of(1, _MIXED, _MIXED + 1))
    refused = pipeline.run(values.decoding(_OTHER_TYPE), **merge)
    expected |= {_MIXED: "EUR"} if casts else {}
    yield (
        "column_of_another_type",
        {
            "passed": (refused is None) == casts and pipeline.rows("currency") == expected,
            "casts": casts,
            "price": pipeline.rows("price").get(_MIXED),
            "refused": refused,
        },
    )
    put(of(1, _MIXED + 1, _LAST))
    refused = pipeline.run(second, **merge)
    expected |= dict.fromkeys(range(_MIXED, _LAST), "EUR")
    yield (
        "old_schema_again",
        {
            "passed": refused is None and pipeline.rows("currency") == expected,
            "rows": len(expected),
            "refused": refused,
        },
    )
    files = pipeline.maintain()
    put(of(1, _LAST, _MORE))
    refused = pipeline.run(second, **merge)
    expected |= dict.fromkeys(range(_LAST, _MORE), "EUR")
    yield (
        "after_compaction",
        {
            "passed": refused is None and pipeline.rows("currency") == expected and files[1] < files[0],
            "files_before_and_after": files,
            "refused": refused,
        },
    )


def own_partitioning(example: Pipeline, values: Values, topic: Topic) -> dict[str, Any]:
    """Create the table of another pipeline first, partitioned by the hour of arrival; return the result of a run."""
    name, template = (f"{CATALOG}.kinesis.{topic}_records" for topic in (topic.name, example.topic.name))
    example.spark.sql(
        f"create table {name} using iceberg partitioned by (hours(timestamp)) as select * from {template} limit 0"  # noqa: S608 - names of this module
    )
    topic.put([values.encode(0, {"id": n, "price": n / 2}) for n in range(_FIRST)])
    pipeline = Pipeline(example.spark, example.place, topic)
    refused = pipeline.run(values.decoding(1))
    fields = cast("StructType", example.spark.table(f"{name}.partitions").schema["partition"].dataType).names
    is_complete = refused is None and len(pipeline.rows("price")) == _FIRST
    return {"passed": is_complete and fields == ["timestamp_hour"], "partitions_by": fields, "refused": refused}


def main(name: str, store: str, catalog: str, servers: str) -> None:
    """Do all cases."""
    place = Place(cast("Name", name), store, catalog or None)
    secrets = json.loads(os.environ["EFO_PIPELINE__SPARK_OPTIONS"])
    jars = sorted(place.jars.glob("*.jar"))
    session = spark_session("efo evolution", quick=True, jars=jars, options=place.spark_options() | secrets)
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="efo-e2e-") as root, session as spark:
        for values in (_json_values(), _avro_values()):
            topic = Topic(Path(root), f"orders_{values.format}", servers)
            pipeline = Pipeline(spark, place, topic)
            found = results[values.format] = {}
            for case, result in evolve(pipeline, values, {"mergeSchema": "true"}):
                print(f"{values.format} {case}: {'passed' if result['passed'] else result}", flush=True)  # noqa: T201 - a command
                found[case] = result
            if values.format == "json" and name == "iceberg":
                own = Topic(Path(root), "orders_own", "")  # from the log: Iceberg on Spark 4.1
                results["json"]["own_partitioning"] = own_partitioning(pipeline, values, own)
    print(json.dumps(results))  # noqa: T201 - a command


if __name__ == "__main__":
    main(*sys.argv[1:])
