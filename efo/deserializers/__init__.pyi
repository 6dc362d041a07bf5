from efo.consumer.handlers.deserialize import (
    BatchValueHandler as BatchValueHandler,
    RecordValueHandler as RecordValueHandler,
)
from efo.deserializers.avro_data import AvroSchema as AvroSchema, avro as avro
from efo.deserializers.base import Deserializer as Deserializer, raw as raw, text as text
from efo.deserializers.changes import (
    DmsChange as DmsChange,
    DynamoDbChange as DynamoDbChange,
    dms as dms,
    dynamodb as dynamodb,
)
from efo.deserializers.cloud_event import CloudEvent as CloudEvent, cloudevents as cloudevents
from efo.deserializers.compressed import gzip as gzip, zstd as zstd
from efo.deserializers.json_data import json as json
from efo.deserializers.many import (
    CloudWatchLogs as CloudWatchLogs,
    LogEvent as LogEvent,
    cloudwatch_logs as cloudwatch_logs,
    json_lines as json_lines,
)
from efo.deserializers.protobuf_data import protobuf as protobuf
from efo.deserializers.pydantic_data import pydantic as pydantic
from efo.deserializers.schemas import (
    BySchema as BySchema,
    Schemas as Schemas,
    by_schema as by_schema,
    confluent as confluent,
    glue as glue,
)
