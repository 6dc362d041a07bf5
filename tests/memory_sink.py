"""A sink of another package, for tests: it keeps nothing but the order of its write buffer, and can be down."""

from __future__ import annotations

from contextlib import asynccontextmanager

import trio

from efo_service.relay.errors import SinkFullError
from efo_service.relay.write_buffer import WriteBuffer


class MemorySink:
    """`is_down`: nothing can be committed. `committed`: the number of records."""

    def __init__(self) -> None:
        self.is_down = False
        self.committed = 0

    @asynccontextmanager
    async def open(self, _stream, _shard_id, _checkpoint=None):
        yield MemoryShardSink(self)


class MemoryShardSink:
    position = None

    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink
        self._buffer = WriteBuffer(self.size, None)

    @property
    def pending_records(self):
        return len(self._buffer.records)

    @property
    def pending_bytes(self):
        return self._buffer.size

    def size(self, records):
        return len(records)

    def refusal(self, _record):
        return None

    def write(self, batch):
        self._buffer.add(batch)

    async def commit(self):
        await trio.lowlevel.checkpoint()
        if self._sink.is_down:
            raise SinkFullError("no space left")
        self._sink.committed += len(self._buffer.records)
        self._buffer.take()


SINKS: dict[str, MemorySink] = {}
"""The sinks of running tests, by the option `name`."""


@asynccontextmanager
async def open_memory(options, _context):
    """The entry point."""
    yield SINKS.setdefault(options["name"], MemorySink())
