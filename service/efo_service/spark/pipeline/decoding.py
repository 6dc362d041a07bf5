"""Decodes values: bytes as they are, JSON with a schema, or Avro with a schema. A value that fails gets a reason.

Before that, it takes off the layers around them: compression, and headers of schema registries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, Literal

from efo.deserializers.many import Layer
from efo.errors import ConfigurationError
from efo.third_party_errors import reason_of
from efo_service.spark.errors import SparkError
from efo_service.spark.pipeline.unwrapping import PLAIN, unwrap

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Format = Literal["raw", "json", "avro"]
DATA: Final = "data"
"""The column of the decoded value."""
REASON: Final = "reason"
"""The column with the reason why a value could not be decoded; null if it could."""
_CORRUPT: Final = "_efo_corrupt"
_MAX_DIGITS: Final = 10_000
"""Digits of a text that Spark may make a decimal of: it needs a minute for a million of them."""
_JSON_MARKER: Final = "efo end"
_AVRO_MARKER: Final = b"\xf5efo end\xfa"


@dataclass(frozen=True)
class Decoding:
    """How values are decoded.

    `schema`: for JSON a DDL string, such as "id bigint, name string"; for Avro an Avro schema in JSON.
    `unwrap`: the layers around the values, the outermost first. `older`: schemas with which values were written that
    `schema` cannot read, the newest first; for Avro alone, whose values are read by the schema of their writer.
    """

    format: Format = "raw"
    schema: str | None = None
    unwrap: tuple[Layer, ...] = ()
    older: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format == "raw" and self.schema:
            raise ConfigurationError('decode = "raw" takes no value_schema: remove it, or set decode to json or avro')
        if self.format != "raw" and not self.schema:
            raise ConfigurationError(f'decode = "{self.format}" needs value_schema, the schema of the values')
        if self.older and self.format != "avro":
            raise ConfigurationError(
                f'decode = "{self.format}" takes no older_value_schemas: JSON of every version is read by value_schema,'
                " in which a field that a value does not have is null"
            )
        if self.format == "avro":
            _check_avro("value_schema", self.schema or "")
            for number, schema in enumerate(self.older):
                _check_avro(f"older_value_schemas[{number}]", schema)

    @property
    def may_fail(self) -> bool:
        """Whether there are values that cannot be decoded; false for raw values without layers."""
        return self.format != "raw" or bool(self.unwrap)


def _check_avro(name: str, schema: str) -> None:
    try:
        json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{name} is not an Avro schema in JSON: {reason_of(error)}") from None


def decode(frame: DataFrame, decoding: Decoding) -> DataFrame:
    """Add the columns DATA and REASON, or none for raw values without layers.

    Raises ConfigurationError if the schema is invalid, and MissingExtraError.
    """
    if not decoding.unwrap:
        return _decode(frame, decoding, "value")
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's custom; pyspark is slow to import, optional

    frame = _decode(unwrap(frame, decoding.unwrap), decoding, f"{PLAIN}.value")
    if decoding.format == "raw":
        frame = frame.withColumn(DATA, F.col(f"{PLAIN}.value")).withColumn(REASON, F.lit(None).cast("string"))
    return frame.withColumn(REASON, F.coalesce(F.col(f"{PLAIN}.reason"), F.col(REASON))).drop(PLAIN)


def _decode(frame: DataFrame, decoding: Decoding, column: str) -> DataFrame:
    match decoding.format:
        case "json":
            return _json(frame, decoding.schema or "", column)
        case "avro":
            return _avro(frame, decoding.schema or "", decoding.older, column)
        case _:
            return frame


def _json(frame: DataFrame, schema: str, column: str) -> DataFrame:
    from pyspark.errors import ParseException  # noqa: PLC0415 - pyspark is slow to import and optional
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's custom; the same
    from pyspark.sql.types import StructType  # noqa: PLC0415 - the same

    try:
        fields = StructType.fromDDL(schema)
    except ParseException as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigurationError(f"[pipeline] value_schema {schema!r} is not a Spark DDL schema: {first}") from error
    if not isinstance(fields, StructType):
        raise ConfigurationError(
            f"[pipeline] value_schema {schema!r} has no field names: write it like 'id bigint, name string'"
        )
    text = F.col(column).cast("string")
    if "decimal" in fields.simpleString():
        text = F.when(F.length(text) < _MAX_DIGITS, text).when(~text.rlike(f"[0-9]{{{_MAX_DIGITS}}}"), text)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.from_json(text, StructType([*fields.fields]).add(_CORRUPT, "string"), options)
    frame = frame.withColumn("_efo_parsed", parsed)
    # from_json ignores what follows the first value. So the text is also parsed as a list of itself and a marker:
    # if the text is more than one value, the marker is not the second item.
    with_marker = F.from_json(
        F.concat(F.lit("["), text, F.lit(f', "{_JSON_MARKER}"]')), "array<string>", {"mode": "PERMISSIVE"}
    )
    is_one_value = F.coalesce(
        (F.size(with_marker) == F.lit(2)) & (F.get(with_marker, F.lit(1)) == F.lit(_JSON_MARKER)), F.lit(False)
    )
    # from_json returns null or a corrupt record if the value is not text, not JSON, or JSON but not an object.
    reason = (
        F.when(~F.is_valid_utf8(text), "not UTF-8")
        .when(
            F.col("_efo_parsed").isNull() | F.col(f"_efo_parsed.{_CORRUPT}").isNotNull(),
            "not JSON that fits the schema",
        )
        .when(~is_one_value, "more than one JSON value")
    )  # fmt: skip
    data: Column = F.struct(*(F.col(f"_efo_parsed.`{name}`") for name in fields.names))
    return frame.withColumn(REASON, reason).withColumn(DATA, data).drop("_efo_parsed")


def _avro(frame: DataFrame, schema: str, older: Sequence[str], column: str) -> DataFrame:
    """Read each value with the first schema that fits it, and resolve it to `schema`, by Avro's rules."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - as above
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - the same
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above

    # from_avro ignores bytes after the end of the schema, and returns null fields for a record that it cannot read.
    # So each value is read together with a marker behind it: if the marker is read back, the value is complete.
    marked = F.concat(F.col(column), F.lit(_AVRO_MARKER))
    columns = [f"_efo_avro_{number}" for number in range(1 + len(older))]
    try:
        read = [_from_avro(marked, writer, schema) for writer in (schema, *older)]
        frame = frame.withColumns(dict(zip(columns, read, strict=True)))
    except AnalysisException as error:
        if error.getCondition() != "AVRO_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE":
            raise
        raise SparkError(
            "decode = 'avro' needs Spark's Avro module: add org.apache.spark:spark-avro_2.13, in Spark's version, to"
            " [pipeline] jars or to spark.jars.packages in [pipeline.spark_options]"
        ) from error
    except Py4JJavaError as error:
        raise ConfigurationError(
            f"[pipeline] value_schema is not an Avro schema that Spark can read: {error.java_exception}"
        ) from error
    complete = [F.coalesce(F.col(f"{name}.mark") == F.lit(_AVRO_MARKER), F.lit(False)) for name in columns]
    data = F.coalesce(*(F.when(c, F.col(f"{name}.value")) for c, name in zip(complete, columns, strict=True)))
    reason = F.when(~reduce(or_, complete), "not Avro that fits the schema")
    return frame.withColumn(REASON, reason).withColumn(DATA, data).drop(*columns)


def _from_avro(marked: Column, writer: str, reader: str) -> Column:
    """Return the column that reads a marked value which `writer` wrote, as `reader` has it."""
    from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415 - as above

    options = {"mode": "PERMISSIVE"} | ({} if writer == reader else {"avroSchema": _with_marker(reader)})
    return from_avro(marked, _with_marker(writer), options)


def _with_marker(schema: str) -> str:
    mark = {"type": "fixed", "name": "EfoMark", "size": len(_AVRO_MARKER)}
    fields = [{"name": "value", "type": json.loads(schema)}, {"name": "mark", "type": mark}]
    return json.dumps({"type": "record", "name": "EfoMarked", "fields": fields})


def decoded_rows(frame: DataFrame, decoding: Decoding) -> DataFrame:
    """Return the rows whose values could be decoded."""
    return frame.where(f"{REASON} is null").drop(REASON) if decoding.may_fail else frame


def failed_rows(frame: DataFrame, columns: list[str]) -> DataFrame:
    """Return the rows whose values could not be decoded: these columns and REASON."""
    selected: list[Any] = [*columns, REASON]
    return frame.where(f"{REASON} is not null").select(*selected)
