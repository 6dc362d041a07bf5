"""efo for asyncio: the names of `efo` with the same meaning, for applications whose event loop is asyncio's or uvloop.

    consume         read a stream with a handler: one call
    open_consumer   read the shards of a stream as async iterators of batches, with acks
    consume_streams, open_streams   the same of many streams, which are added and removed while they are read
    open_producer   put records into a stream

Batches, records, settings, policies and errors are those of `efo`.
"""

from efo.adapters.consumer import ProcessorReader, StreamConsumer
from efo.adapters.opening import StreamLike
from efo.aio.consumer import Consumer, MultiStreamConsumer
from efo.aio.handler import ExactlyOnceHandler, Handler
from efo.aio.opening import StreamTracker, consume, consume_streams, open_consumer, open_streams
from efo.aio.producer import Delivery, Producer, open_producer
from efo.aio.shard_stream import ShardReader, ShardStream
from efo.consumer.handlers.deserialize import deserialize, deserialize_record
from efo.consumer.handlers.processor import RecordProcessor

__all__ = (
    "Consumer",
    "Delivery",
    "ExactlyOnceHandler",
    "Handler",
    "MultiStreamConsumer",
    "ProcessorReader",
    "Producer",
    "RecordProcessor",
    "ShardReader",
    "ShardStream",
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
