"""What the formats that read the log share: schema and refused options. See EfoDataSource."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from efo.errors import ConfigurationError
from efo_service.log.reading import POSITION
from efo_service.log.segments import SCHEMA
from efo_service.spark.errors import one_line_errors
from efo_service.spark.source import catalog_table
from efo_service.spark.source.shipping import Shipped

_STREAM_ONLY: Final = {
    "maxOffsetsPerTrigger": "use endingOffsets to read a part of the log",
    "minOffsetsPerTrigger": "remove it",
    "maxTriggerDelay": "remove it",
}
"""Options of a stream that a batch query cannot have, and what to do instead."""


_PAIR: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: Final[Mapping[pa.DataType, DataType]] = {
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    SCHEMA.field("timestamp").type: TimestampType(),
    SCHEMA.field("headers").type: ArrayType(_PAIR),
}
"""The types of the log's columns in Spark."""


class ReadOptions(Protocol):
    """The options that every format has. `columns`: what is read of a record. `names`: the options that were set."""

    @property
    def columns(self) -> tuple[str, ...]: ...  # noqa: D102 - see the class

    @property
    def names(self) -> frozenset[str]: ...  # noqa: D102 - see the class


class LogDataSource(Shipped, DataSource):
    """A format that reads the log.

    Its options are parsed when Spark reads: Spark creates the source for a write, too, with the writer's options.
    """

    @property
    @abstractmethod
    def _options(self) -> ReadOptions:
        """The options, parsed. Raises ConfigurationError."""

    @one_line_errors()
    def schema(self) -> StructType:
        """Return the schema of Spark's Kafka source, or the chosen columns, with the options of a table."""
        table = catalog_table.creating(self.options)
        if table is not None:
            self.options = table
        fields = {field.name: field.type for field in (*SCHEMA, *POSITION)}
        schema = StructType([StructField(name, _TYPES[fields[name]]) for name in self._options.columns])
        if table is not None:
            catalog_table.keep(schema, table)
        return schema

    def _check_schema(self, schema: StructType) -> None:
        self.options = catalog_table.reading(schema, self.options)
        columns = list(self._options.columns)
        if schema.names != columns:
            raise ConfigurationError(f'format("{self.name()}") has the columns {", ".join(columns)}: remove .schema()')

    def _check_batch(self, schema: StructType) -> None:
        """Check what every batch query must hold. Raises ConfigurationError."""
        self._check_schema(schema)
        for name, instead in _STREAM_ONLY.items():
            if name in self._options.names:
                raise ConfigurationError(f"{name} is for readStream: {instead}")
