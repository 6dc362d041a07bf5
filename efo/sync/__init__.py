"""efo for synchronous code: scripts, threads and notebooks, without an event loop.

    open_consumer   iterate over the batches or records of a stream, and ack them
    consume         read a stream with a plain handler: one call
    open_producer   put records into a stream

Batches, records, settings, policies and errors are those of `efo`.
"""

from efo.sync.consumer import Consumer
from efo.sync.handler import BatchHandler, Flush, Handler, RecordHandler
from efo.sync.opening import consume, open_consumer
from efo.sync.processor import ProcessorReader, RecordProcessor
from efo.sync.producer import Delivery, Producer, open_producer

__all__ = (
    "BatchHandler",
    "Consumer",
    "Delivery",
    "Flush",
    "Handler",
    "ProcessorReader",
    "Producer",
    "RecordHandler",
    "RecordProcessor",
    "consume",
    "open_consumer",
    "open_producer",
)
