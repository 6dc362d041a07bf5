"""Refuses columns of another type than those that a query has written into its files before.

Spark's file sink looks at no file that is there: it would write the other type beside the first one, and then no reader
could read the directory as a whole. Delta and Iceberg know the types of a table, and decide themselves.

The types are in the files. A start that read the footers of all of them would take minutes once there are many: so the
types are kept beside the checkpoint, too, and the files are read if what is kept does not fit, or is not there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from efo_service.spark.errors import SparkError, reason
from efo_service.spark.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_FILES: Final = ("parquet", "orc", "avro")
"""The formats of Spark's file sink whose files have types."""
_KEPT: Final = "efo-types"
"""A directory in a query's checkpoint, in which Spark ignores what it does not know."""
_LIST: Final = "_spark_metadata"
"""The list of the files that Spark's file sink has committed."""
_NO_FILES: Final = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
"""Spark's errors before the first batch, and if no batch had rows."""


def check_written_types(
    spark: SparkSession, frames: Mapping[str, DataFrame], settings: PipelineSettings, partitions: Collection[str]
) -> None:
    """Raise SparkError if a query would write a column with another type than before. Before the first batch.

    `frames`: by query. `partitions`: columns that are in the names of directories.
    """
    if settings.sink_format.lower() not in _FILES:
        return
    for name, frame in frames.items():
        schema = without(frame.schema, partitions)
        if settings.table is not None:
            if spark.catalog.tableExists(table := f"{settings.table}_{name}"):
                _refuse_changes(f"the table {table}", without(spark.table(table).schema, partitions), schema)
            continue
        place, output = f"{settings.checkpoint_of(name)}/{_KEPT}", settings.output_of(name)
        kept = before = _kept(spark, place)
        if before is None or changed_types(before, schema):
            before = without(_types_of_files(spark, output, settings.sink_format), partitions)
            _refuse_changes(f"the output {output}", before, schema)
        if (types := merged(before, schema)) != kept:
            _keep(spark, place, types)


def changed_types(before: StructType, after: StructType) -> list[str]:
    """Return each column of both, or field in one, whose type differs: "data.price: double, now string".

    Whether it may be null makes no difference. Names are compared as Spark does, without case.
    """
    return list(_changes(before, after, ""))


def _changes(before: DataType, after: DataType, path: str) -> Iterator[str]:
    from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: PLC0415 - pyspark is slow to import, optional

    match before, after:
        case StructType(), StructType():
            former = {field.name.lower(): field for field in before}
            for field in after:
                if (known := former.get(field.name.lower())) is not None:
                    yield from _changes(known.dataType, field.dataType, f"{path}.{field.name}" if path else field.name)
        case ArrayType(), ArrayType():
            yield from _changes(before.elementType, after.elementType, f"{path}[]")
        case MapType(), MapType():
            yield from _changes(before.keyType, after.keyType, f"{path} (key)")
            yield from _changes(before.valueType, after.valueType, f"{path} (value)")
        case _ if before != after:
            yield f"{path}: {before.simpleString()}, now {after.simpleString()}"


def merged(before: DataType, after: DataType) -> Any:
    """Return a type with the fields of both; those that both have are of `after`."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType  # noqa: PLC0415 - the same

    match before, after:
        case StructType(), StructType():
            former = {field.name.lower(): field for field in before}
            fields = [
                StructField(each.name, merged(known.dataType, each.dataType) if known else each.dataType)
                for each, known in ((each, former.pop(each.name.lower(), None)) for each in after)
            ]
            return StructType(fields + list(former.values()))
        case ArrayType(), ArrayType():
            return ArrayType(merged(before.elementType, after.elementType))
        case MapType(), MapType():
            return MapType(merged(before.keyType, after.keyType), merged(before.valueType, after.valueType))
    return after


def without(schema: StructType, names: Collection[str]) -> StructType:
    """Return the schema without some columns."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - the same

    return StructType([field for field in schema if field.name.lower() not in names])


def _refuse_changes(where: str, before: StructType, after: StructType) -> None:
    if changes := changed_types(before, after):
        raise SparkError(
            f"{where} has other types than [pipeline] value_schema and decode say now: {'; '.join(changes)}. Files of"
            " both could not be read together, so nothing was written: give the value a new field, or choose a new"
            " output and checkpoint (docs/tables.md)"
        )


def _types_of_files(spark: SparkSession, output: str, sink_format: str) -> StructType:
    """Return the columns of all files that are committed; none if there are no files yet."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - the same

    try:
        spark.read.text(f"{output}/{_LIST}")
        return spark.read.format(sink_format).option("mergeSchema", "true").load(output).schema
    except Exception as error:
        if any(condition in str(error) for condition in _NO_FILES):
            return StructType()
        raise SparkError(
            f"the files in {output} cannot be read together, so nothing was written: {reason(error)}"
        ) from error


def _kept(spark: SparkSession, place: str) -> StructType | None:
    """Return the types that were kept; None if there are none, or only a part since the run was killed meanwhile."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - the same
    from pyspark.sql.types import StructType  # noqa: PLC0415 - the same

    try:
        lines = spark.read.text(place).collect()
        return StructType.fromJson(json.loads("".join(line.value for line in lines)))
    except (AnalysisException, ValueError):
        return None


def _keep(spark: SparkSession, place: str, types: StructType) -> None:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's custom; the same

    spark.range(1).select(F.lit(types.json()).alias("value")).coalesce(1).write.mode("overwrite").text(place)
