"""What a value is: bytes as they are, JSON of a schema, or Avro of a schema. What is not so, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from efo.errors import ConfigurationError
from efo_service.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Format = Literal["raw", "json", "avro"]
DATA: Final = "data"
"""The column of the decoded value."""
REASON: Final = "reason"
"""The column that says why a value could not be decoded; null where it could."""
_CORRUPT: Final = "_efo_corrupt"
_LAST: Final = "efo end"
_MARK: Final = b"\xf5efo end\xfa"


@dataclass(frozen=True)
class Decoding:
    """How values are decoded. `schema`: DDL for JSON, such as "id bigint, name string"; Avro's own JSON for Avro."""

    format: Format = "raw"
    schema: str | None = None

    def __post_init__(self) -> None:
        if self.format == "raw" and self.schema:
            raise ConfigurationError('decode = "raw" takes no value_schema: remove it, or decode json or avro')
        if self.format != "raw" and not self.schema:
            raise ConfigurationError(f'decode = "{self.format}" needs value_schema, the schema of the values')
        if self.format == "avro":
            try:
                json.loads(self.schema or "")
            except ValueError as error:
                raise ConfigurationError(f"value_schema is not an Avro schema in JSON: {error}") from error


def decode(frame: DataFrame, decoding: Decoding) -> DataFrame:
    """Add the columns DATA and REASON; nothing for raw values. Raises ConfigurationError for a schema that is none."""
    match decoding.format:
        case "json":
            return _json(frame, decoding.schema or "")
        case "avro":
            return _avro(frame, decoding.schema or "")
        case _:
            return frame


def _json(frame: DataFrame, schema: str) -> DataFrame:
    from pyspark.errors import ParseException  # noqa: PLC0415 - pyspark is slow to import and not always there
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's custom; the same
    from pyspark.sql.types import StructType  # noqa: PLC0415 - the same

    try:
        wanted = StructType.fromDDL(schema)
    except ParseException as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigurationError(f"[pipeline] value_schema {schema!r} is not one of Spark's: {first}") from error
    if not isinstance(wanted, StructType):
        raise ConfigurationError(
            f"[pipeline] value_schema {schema!r} has no names: write it as 'id bigint, name string'"
        )
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.from_json(text, StructType([*wanted.fields]).add(_CORRUPT, "string"), options)
    frame = frame.withColumn("_efo_parsed", parsed)
    # Spark reads one value and does not look for more. In a list with a mark behind it, nothing else may come between.
    both = F.from_json(F.concat(F.lit("["), text, F.lit(f', "{_LAST}"]')), "array<string>", {"mode": "PERMISSIVE"})
    is_one = F.coalesce((F.size(both) == F.lit(2)) & (F.get(both, F.lit(1)) == F.lit(_LAST)), F.lit(False))
    # A value that is no text, no JSON or another JSON than an object is told as corrupt or as null.
    reason = (
        F.when(~F.is_valid_utf8(text), "not UTF-8")
        .when(F.col("_efo_parsed").isNull() | F.col(f"_efo_parsed.{_CORRUPT}").isNotNull(), "not JSON of the schema")
        .when(~is_one, "more than one JSON value")
    )  # fmt: skip
    data: Column = F.struct(*(F.col(f"_efo_parsed.`{name}`") for name in wanted.names))
    return frame.withColumn(REASON, reason).withColumn(DATA, data).drop("_efo_parsed")


def _avro(frame: DataFrame, schema: str) -> DataFrame:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - as above
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - the same
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the same
    from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415 - the same

    # Avro stops reading where the schema ends, whatever comes then, and a record that cannot be read comes as one whose
    # fields are null. So each value is read together with a mark behind it: where that is found, the value is whole.
    marked = F.concat(F.col("value"), F.lit(_MARK))
    with_mark = {
        "type": "record",
        "name": "EfoMarked",
        "fields": [
            {"name": "value", "type": json.loads(schema)},
            {"name": "mark", "type": {"type": "fixed", "name": "EfoMark", "size": len(_MARK)}},
        ],
    }
    try:
        frame = frame.withColumn("_efo_avro", from_avro(marked, json.dumps(with_mark), {"mode": "PERMISSIVE"}))
    except AnalysisException as error:
        if error.getCondition() != "AVRO_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE":
            raise
        raise SparkError(
            "decode = 'avro' needs Spark's Avro module: put org.apache.spark:spark-avro_2.13, of Spark's own version,"
            " into [pipeline] jars, or name it in spark.jars.packages of [pipeline.spark_options]"
        ) from error
    except Py4JJavaError as error:
        raise ConfigurationError(f"[pipeline] Spark reads no Avro by this schema: {error.java_exception}") from error
    is_whole = F.coalesce(F.col("_efo_avro.mark") == F.lit(_MARK), F.lit(False))
    reason = F.when(~is_whole, "not Avro of the schema")
    data = F.when(is_whole, F.col("_efo_avro.value"))
    return frame.withColumn(REASON, reason).withColumn(DATA, data).drop("_efo_avro")


def good(frame: DataFrame, decoding: Decoding) -> DataFrame:
    """Return the rows whose values could be decoded."""
    return frame if decoding.format == "raw" else frame.where(f"{REASON} is null").drop(REASON)


def bad(frame: DataFrame, columns: list[str]) -> DataFrame:
    """Return the others, with their reasons."""
    wanted: list[Any] = [*columns, REASON]
    return frame.where(f"{REASON} is not null").select(*wanted)
