"""From the data of records to values with types: `efo.deserialize(handler, efo.deserializers.json(Order))`.

A deserializer is a function of a record: `Callable[[Record], T]`. An outer layer takes the inner one as its argument:
`gzip(json(Order))` decompresses, then decodes. Each name is loaded when it is first used, and the library behind it
when the deserializer is made.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from efo.deserializers.avro_data import AvroSchema, avro
    from efo.deserializers.base import Deserializer, raw, text
    from efo.deserializers.changes import DmsChange, DynamoDbChange, dms, dynamodb
    from efo.deserializers.cloud_event import CloudEvent, cloudevents
    from efo.deserializers.compressed import gzip, zstd
    from efo.deserializers.json_data import json
    from efo.deserializers.many import CloudWatchLogs, LogEvent, cloudwatch_logs, json_lines
    from efo.deserializers.protobuf_data import protobuf
    from efo.deserializers.pydantic_data import pydantic
    from efo.deserializers.registries import confluent, glue
    from efo.deserializers.schemas import BySchema, Schemas, by_schema

_MODULES = {
    "AvroSchema": "avro_data",
    "BySchema": "schemas",
    "CloudEvent": "cloud_event",
    "CloudWatchLogs": "many",
    "Deserializer": "base",
    "DmsChange": "changes",
    "DynamoDbChange": "changes",
    "LogEvent": "many",
    "Schemas": "schemas",
    "avro": "avro_data",
    "by_schema": "schemas",
    "cloudevents": "cloud_event",
    "cloudwatch_logs": "many",
    "confluent": "registries",
    "dms": "changes",
    "dynamodb": "changes",
    "glue": "registries",
    "gzip": "compressed",
    "json": "json_data",
    "json_lines": "many",
    "protobuf": "protobuf_data",
    "pydantic": "pydantic_data",
    "raw": "base",
    "text": "base",
    "zstd": "compressed",
}

__all__ = (
    "AvroSchema",
    "BySchema",
    "CloudEvent",
    "CloudWatchLogs",
    "Deserializer",
    "DmsChange",
    "DynamoDbChange",
    "LogEvent",
    "Schemas",
    "avro",
    "by_schema",
    "cloudevents",
    "cloudwatch_logs",
    "confluent",
    "dms",
    "dynamodb",
    "glue",
    "gzip",
    "json",
    "json_lines",
    "protobuf",
    "pydantic",
    "raw",
    "text",
    "zstd",
)

if not TYPE_CHECKING:  # type checkers would otherwise accept any name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'efo.deserializers' has no attribute {name!r}")
        return getattr(import_module(f"efo.deserializers.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
