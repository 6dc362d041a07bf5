"""efo reads Amazon Kinesis Data Streams by enhanced fan-out, and puts records into them, on trio.

    consume         read a stream with a handler: one call
    open_consumer   read the shards of a stream as async iterators of batches, with acks
    consume_streams, open_streams   the same of many streams, which are added and removed while they are read
    open_producer   put records into a stream: batched, retried, within the limits of its shards
    read_log        read what the service has written into its log, as Arrow record batches
    aio, sync       the same for asyncio, and for code without an event loop

Each name is loaded when it is first used: `import efo` itself is quick and imports no other package.
"""

from __future__ import annotations

from efo.lazy import lazy_names

_get, __dir__, __all__ = lazy_names(__name__)
"""The names of applications. Their errors, events, lease stores, values and observers are in `efo.errors`,
`efo.events`, `efo.leases`, `efo.model`, `efo.health` and `efo.telemetry`, which are loaded in the same way.
"""


def __getattr__(name: str) -> object:
    return _version() if name == "__version__" else _get(name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import, and seldom used

    try:
        return version("efo")
    except PackageNotFoundError:  # its files without its metadata, such as those that Spark ships to workers
        return "unknown"
