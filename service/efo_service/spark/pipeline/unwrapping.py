"""Takes the layers off values before Spark decodes them: compression, and the headers of schema registries.

The layers are efo's own deserializers (`efo.deserializers`), in Spark's Python workers. So a value is refused here for
the same reason as in a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Literal

from efo.deserializers.base import Deserializer, raw
from efo.deserializers.compressed import gzip, zstd
from efo.deserializers.registries import confluent, glue
from efo.errors import DeserializationError
from efo.model import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Layer = Literal["gzip", "zstd", "confluent", "glue"]
PLAIN: Final = "_efo_plain"
"""The column with the value without its layers, and the reason why one could not be taken off."""
_Wrap = Callable[[Deserializer[bytes]], Deserializer[bytes]]
_LAYERS: Final[Mapping[Layer, _Wrap]] = {"gzip": gzip, "zstd": zstd, "confluent": confluent, "glue": glue}


def unwrap(frame: DataFrame, layers: Sequence[Layer]) -> DataFrame:
    """Add the column PLAIN. `layers`: the outermost first. Raises MissingExtraError."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's custom; pyspark is optional

    _reader(tuple(layers))  # what is not installed is missed here, and not in a worker
    take_off = F.udf(partial(unwrapped, tuple(layers)), "value binary, reason string", useArrow=False)
    return frame.withColumn(PLAIN, take_off(F.col("value")))


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
