"""Counts the hand-offs of a batch on its way from the edge of the relay to the commit of the log, by watching one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pyarrow as pa
import trio

from efo.consumer.age_limits import AgeLimits
from efo.health import Overdue
from efo.model import Batch, Checkpoint, Record
from efo_service.log.columns.layout import Columns
from efo_service.log.disk import DiskFiles
from efo_service.log.disk_writer import SegmentContent
from efo_service.log.sink import LogSink
from efo_service.relay.destination import Destination, NoReports, SinkRetries
from efo_service.relay.relay import relay_shard
from efo_service.relay.sink import Part
from efo_service.relay.write_buffer import Group

_CARRIERS: Final = (Batch, Group, Part, Columns, SegmentContent, pa.RecordBatch)
_OURS: Final = ("efo.", "efo_service.")
_ASKED: Final = ("efo.model", "efo.protocol.lazy_batch", "efo_service.relay.mapping", "efo_service.relay.record_size")
"""What is asked about records, and does not pass them on."""


class _Shard:
    """A shard of one batch."""

    stream, shard_id, checkpoint, has_pending = "orders", "shardId-000000000000", Checkpoint.TRIM_HORIZON, False

    def __init__(self) -> None:
        self.overdue: Callable[[], Overdue | None] = lambda: None
        self.ages: AgeLimits | None = None

    def seek(self, _checkpoint: Checkpoint) -> None:
        """Stay where it is."""

    def ack_through(self, _batch: Batch, _index: int | None = None) -> None:
        """Take the ack."""

    async def __aiter__(self) -> AsyncIterator[Batch]:
        records = tuple(Record(str(number), 1.0, b"data", "key") for number in range(1, 9))
        await trio.lowlevel.checkpoint()
        yield Batch(self.stream, self.shard_id, records, "8", 0, 0)


def handoffs() -> list[tuple[str, str]]:
    """Return the hand-offs: the calls from one module to another that carry the records, each once, in their order."""
    found: dict[tuple[str, str], None] = {}

    def watch(frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or (caller := _caller(frame)) is None:
            return
        there, here = caller.f_globals["__name__"], frame.f_globals["__name__"]
        code = frame.f_code
        arguments = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
        if there != here and not here.startswith(_ASKED) and any(map(_carries, arguments)):
            found.setdefault((f"{there}.{caller.f_code.co_qualname}", f"{here}.{code.co_qualname}"))

    async def inline(function: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return function()

    async def relay(directory: str) -> None:
        sink = LogSink(DiskFiles(Path(directory)), "orders", run_blocking=inline)
        destination = Destination(sink, SinkRetries(seconds=0.0, isolates=False), NoReports())
        sys.setprofile(watch)
        try:
            await relay_shard(_Shard(), destination)
        finally:
            sys.setprofile(None)

    with tempfile.TemporaryDirectory() as directory:
        trio.run(relay, directory)
    return list(found)


def _caller(frame: FrameType) -> FrameType | None:
    """Return the nearest frame of efo that called it."""
    found = frame.f_back
    while found is not None and not found.f_globals.get("__name__", "").startswith(_OURS):
        found = found.f_back
    return found if frame.f_globals.get("__name__", "").startswith(_OURS) else None


def _carries(value: object) -> bool:
    if isinstance(value, tuple | list) and not isinstance(value, _CARRIERS) and value:
        value = value[0]
    return isinstance(value, (*_CARRIERS, Record))
