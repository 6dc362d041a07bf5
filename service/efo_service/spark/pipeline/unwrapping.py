"""Takes the layers off values before Spark decodes them: compression, and the headers of schema registries.

The layers are efo's own deserializers (`efo.deserializers`), in Spark's Python workers. So a value is refused here for
the same reason as in a handler. A worker holds few values at once: ten thousand rows of some kilobytes may be gigabytes
without their layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from efo.deserializers.base import Deserializer
from efo.deserializers.many import Layer, has_many, unwrapping
from efo.errors import DeserializationError
from efo.model import Record

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PLAIN: Final = "_efo_plain"
"""The column with the value without its layers, and the reason why one could not be taken off."""
MAX_UNPACKED: Final = 16 * 1024 * 1024
"""Bytes of values without their layers that a worker returns to Spark at once, unless a single record has more."""
_Plain = tuple[bytes | None, str | None]


def unwrap(frame: DataFrame, layers: Sequence[Layer]) -> DataFrame:
    """Add the column PLAIN. A record with many values becomes as many rows, one without any none.

    `layers`: the outermost first. Raises MissingExtraError.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import; the configuration imports this module
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's custom; pyspark is optional

    chosen = tuple(layers)
    _reader(chosen)  # what is not installed is missed here, and not in a worker

    def take_off(values: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return unwrapped_arrays(chosen, values)

    # By its hints Spark sees that the arrays which it returns may be others than those that it gets.
    take_off.__annotations__ = {"values": Iterator[pa.Array], "return": Iterator[pa.Array]}
    arrow_udf: Any = F.arrow_udf  # type: ignore[attr-defined] # its types do not have it
    kind = "struct<value: binary, reason: string>"
    if not has_many(chosen):
        return frame.withColumn(PLAIN, arrow_udf(take_off, kind)(F.col("value")))
    frame = frame.withColumn(PLAIN, arrow_udf(take_off, f"array<{kind}>")(F.col("value")))
    return frame.withColumn(PLAIN, F.explode(PLAIN))


def unwrapped_arrays(layers: tuple[Layer, ...], values: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Yield values without their layers, and the reasons, in as many arrays as MAX_UNPACKED asks for.

    For layers that have many values, the arrays are of lists of them.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and only in workers

    plain = pa.struct([("value", pa.binary()), ("reason", pa.string())])
    is_list = has_many(layers)
    kind = pa.list_(plain) if is_list else plain
    for array in values:
        rows: list[object] = []
        size = 0
        for value in array:
            found = unwrapped(layers, value.as_py())
            parts = [{"value": part, "reason": reason} for part, reason in found]
            rows.append(parts if is_list else parts[0])
            size += sum(len(part or b"") for part, _ in found)
            if size >= MAX_UNPACKED:
                yield pa.array(rows, kind)
                rows, size = [], 0
        if rows:
            yield pa.array(rows, kind)


def unwrapped(layers: tuple[Layer, ...], value: bytes | None) -> Sequence[_Plain]:
    """Return the values of a record, each with None; or None, and the reason why a layer could not be taken off."""
    if value is None:
        return [(None, "no value")]
    try:
        return [(part, None) for part in _reader(layers)(Record("", 0.0, bytes(value), ""))]
    except DeserializationError as error:
        return [(None, error.reason)]


@cache
def _reader(layers: tuple[Layer, ...]) -> Deserializer[Sequence[bytes]]:
    return unwrapping(layers)
