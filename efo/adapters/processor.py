"""Record processors in the manner of KCL, whose methods run on the application's side of a surface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from efo.adapters.calls import SIDE, outside
from efo.consumer.handlers.processor import Checkpointer, ProcessorReader as TrioProcessorReader
from efo.consumer.shard_stream import ShardStream


class ProcessorReader(TrioProcessorReader):
    """Reads shards by record processors, as `efo.ProcessorReader`, with methods that run on the application's side."""

    surface = "efo.aio"
    takes_kcl_classes = False  # they block, and run in threads of trio's

    def bind(self, method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Return an async function for trio that calls this method of a processor on the application's side."""
        return outside(method)

    def checkpointer(self, shard: ShardStream) -> Checkpointer:
        """Return the checkpointer of a shard, for any thread."""
        return Checkpointer(shard, SIDE.get().post)

    async def make(self) -> Any:
        """Make a processor on the application's side."""
        return await outside(self._factory)()
