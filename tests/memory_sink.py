"""A sink of another package, for tests: it keeps nothing but the number of records, and can be down."""

from __future__ import annotations

from contextlib import asynccontextmanager

import trio

from efo_service.relay.errors import SinkFullError
from efo_service.relay.sink import Part


class MemorySink:
    """`is_down`: nothing can be committed. `committed`: the number of records."""

    def __init__(self) -> None:
        self.is_down = False
        self.committed = 0

    @asynccontextmanager
    async def open(self, _stream, _shard_id, _checkpoint=None):
        yield MemoryShardSink(self)


class MemoryShardSink:
    position = refusal = None

    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

    def prepare(self, records):
        return Part(len(records), len(records))

    async def commit(self, parts):
        await trio.lowlevel.checkpoint()
        if self._sink.is_down:
            raise SinkFullError("no space left")
        self._sink.committed += sum(part.content for part in parts)


SINKS: dict[str, MemorySink] = {}
"""The sinks of running tests, by the option `name`."""


@asynccontextmanager
async def open_memory(options, _context):
    """The entry point."""
    yield SINKS.setdefault(options["name"], MemorySink())
