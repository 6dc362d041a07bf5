"""efo for synchronous code: scripts, threads and notebooks, without an event loop.

    open_consumer   iterate over the batches or records of a stream, and ack them
    consume         read a stream with a plain handler: one call

Batches, records, settings, policies and errors are those of `efo`.
"""

from efo.sync.consumer import Consumer
from efo.sync.handler import BatchHandler, Flush, Handler, RecordHandler
from efo.sync.opening import consume, open_consumer
from efo.sync.processor import ProcessorReader, RecordProcessor

__all__ = (
    "BatchHandler",
    "Consumer",
    "Flush",
    "Handler",
    "ProcessorReader",
    "RecordHandler",
    "RecordProcessor",
    "consume",
    "open_consumer",
)
