"""Takes the layers off values before Spark decodes them: compression, and the headers of schema registries.

The layers are efo's own deserializers (`efo.deserializers`), in Spark's Python workers. So a value is refused here for
the same reason as in a handler. A worker holds few values at once: ten thousand rows of some kilobytes may be gigabytes
without their layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from efo.deserializers.base import Deserializer, raw
from efo.deserializers.compressed import gzip, zstd
from efo.deserializers.registries import confluent, glue
from efo.errors import DeserializationError
from efo.model import Record

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Layer = Literal["gzip", "zstd", "confluent", "glue"]
PLAIN: Final = "_efo_plain"
"""The column with the value without its layers, and the reason why one could not be taken off."""
MAX_UNPACKED: Final = 16 * 1024 * 1024
"""Bytes of values without their layers that a worker returns to Spark at once, unless a single one has more."""
_Wrap = Callable[[Deserializer[bytes]], Deserializer[bytes]]
_LAYERS: Final[Mapping[Layer, _Wrap]] = {"gzip": gzip, "zstd": zstd, "confluent": confluent, "glue": glue}


def unwrap(frame: DataFrame, layers: Sequence[Layer]) -> DataFrame:
    """Add the column PLAIN. `layers`: the outermost first. Raises MissingExtraError."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import; the configuration imports this module
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's custom; pyspark is optional

    chosen = tuple(layers)
    _reader(chosen)  # what is not installed is missed here, and not in a worker

    def take_off(values: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return unwrapped_arrays(chosen, values)

    # By its hints Spark sees that the arrays which it returns may be others than those that it gets.
    take_off.__annotations__ = {"values": Iterator[pa.Array], "return": Iterator[pa.Array]}
    arrow_udf: Any = F.arrow_udf  # type: ignore[attr-defined] # its types do not have it
    return frame.withColumn(PLAIN, arrow_udf(take_off, "value binary, reason string")(F.col("value")))


def unwrapped_arrays(layers: tuple[Layer, ...], values: Iterator[pa.Array]) -> Iterator[pa.StructArray]:
    """Yield values without their layers, and the reasons, in as many arrays as MAX_UNPACKED asks for."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and only in workers

    for array in values:
        plain: list[tuple[bytes | None, str | None]] = []
        size = 0
        for value in array:
            plain.append(unwrapped(layers, value.as_py()))
            size += len(plain[-1][0] or b"")
            if size >= MAX_UNPACKED:
                yield _struct(pa, plain)
                plain, size = [], 0
        if plain:
            yield _struct(pa, plain)


def _struct(pa: Any, plain: Sequence[tuple[bytes | None, str | None]]) -> pa.StructArray:
    columns = [
        pa.array([value for value, _ in plain], pa.binary()),
        pa.array([reason for _, reason in plain], pa.string()),
    ]
    return pa.StructArray.from_arrays(columns, ["value", "reason"])


def unwrapped(layers: tuple[Layer, ...], value: bytes | None) -> tuple[bytes | None, str | None]:
    """Return a value without its layers, and None; or None, and the reason why a layer could not be taken off."""
    if value is None:
        return None, "no value"
    try:
        return _reader(layers)(Record("", 0.0, bytes(value), "")), None
    except DeserializationError as error:
        return None, error.reason


@cache
def _reader(layers: tuple[Layer, ...]) -> Deserializer[bytes]:
    reader: Deserializer[bytes] = raw
    for layer in reversed(layers):
        reader = _LAYERS[layer](reader)
    return reader
