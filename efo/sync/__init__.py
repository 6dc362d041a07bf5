"""efo for synchronous code: scripts, threads and notebooks, without an event loop.

    open_consumer   iterate over the batches or records of a stream, and ack them
    consume         read a stream with a plain handler: one call
    consume_streams, open_streams   the same of many streams, which are added and removed while they are read
    deserialize     handlers of values with types instead of bytes
    open_producer   put records into a stream

Batches, records, settings, policies and errors are those of `efo`.
"""

from efo.adapters.consumer import StreamConsumer
from efo.adapters.opening import StreamLike
from efo.sync.consumer import Consumer, MultiStreamConsumer
from efo.sync.handler import (
    BatchHandler,
    BatchValueHandler,
    ExactlyOnceHandler,
    Flush,
    Handler,
    ProcessorReader,
    RecordHandler,
    RecordProcessor,
    RecordValueHandler,
    deserialize,
    deserialize_record,
)
from efo.sync.opening import StreamTracker, consume, consume_streams, open_consumer, open_streams
from efo.sync.producer import Delivery, Producer, open_producer

__all__ = (
    "BatchHandler",
    "BatchValueHandler",
    "Consumer",
    "Delivery",
    "ExactlyOnceHandler",
    "Flush",
    "Handler",
    "MultiStreamConsumer",
    "ProcessorReader",
    "Producer",
    "RecordHandler",
    "RecordProcessor",
    "RecordValueHandler",
    "StreamConsumer",
    "StreamLike",
    "StreamTracker",
    "consume",
    "consume_streams",
    "deserialize",
    "deserialize_record",
    "open_consumer",
    "open_producer",
    "open_streams",
)
