"""Opens what reads the shards of a stream by child processes, as a part of the service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from opentelemetry.metrics import MeterProvider

from efo_service.config.settings import Settings
from efo_service.multilang.reader import ChildReader, ChildSettings
from efo_service.multilang.usage import Usage, measure
from efo_service.streams.parts import PARTS, Parts


def parts_of(children: ChildSettings, parts: Parts = PARTS) -> Parts:
    """Return the parts of a service that reads shards by child processes, and opens no sink."""
    return replace(parts, open_reader=partial(open_reader, children))


@asynccontextmanager
async def open_reader(
    children: ChildSettings, settings: Settings, meters: MeterProvider, stop: Callable[[], None]
) -> AsyncIterator[ChildReader]:
    """Open the reader of a stream. Leaving it raises the ChildError that has ended the reading, if one has."""
    reader = ChildReader(children, stop)
    names = {
        "messaging.destination.name": settings.kinesis.stream_name,
        "messaging.consumer.group.name": settings.consumer.application,
    }
    measure(Usage(reader.children), names, meters)
    yield reader
    if reader.failure is not None:
        raise reader.failure
