"""Reading by child processes as a part of the service: what is opened for a stream, and what its children use.

The metrics are their number, CPU time and memory.
"""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from efo.telemetry.instruments import SCHEMA_URL
from efo_service.config.settings import Settings
from efo_service.multilang.child import Child
from efo_service.multilang.reader import ChildReader, ChildSettings
from efo_service.streams.parts import PARTS, Parts

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PROC: Final = Path("/proc")


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


class Usage:
    """What these children use. `children`: those that run, by their shards. Exporters' threads call its methods."""

    def __init__(self, children: Mapping[str, Child]) -> None:
        self._children = children

    def count(self) -> int:
        """Return how many run."""
        return len(self._children)

    def cpu_seconds(self) -> float:
        """Return the CPU time of those that run, and of all that have ended in this process."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime + sum(ticks for ticks, _ in self._stats()) / _TICKS

    def memory(self) -> int:
        """Return the resident memory of those that run, in bytes."""
        return sum(pages for _, pages in self._stats()) * _PAGE

    def _stats(self) -> Iterable[tuple[int, int]]:
        """Yield CPU ticks and resident pages of each. Without /proc, as on macOS, it yields nothing."""
        for child in list(self._children.values()):
            try:
                text = (_PROC / str(child.pid) / "stat").read_text(errors="replace")
            except OSError:
                continue
            # proc(5), counted from 1: 14 and 15 utime and stime, 24 rss. After the program's name, field 3 is at 0.
            fields = text.rpartition(") ")[2].split()
            yield int(fields[11]) + int(fields[12]), int(fields[21])


def measure(usage: Usage, attributes: Mapping[str, str], provider: MeterProvider) -> None:
    """Export what the children of a stream use. `attributes`: the names of the stream and of the application."""
    meter = provider.get_meter("efo.service", schema_url=SCHEMA_URL)

    def observations(value: float) -> list[Observation]:
        return [Observation(value, dict(attributes))]

    def count(_options: CallbackOptions) -> Iterable[Observation]:
        return observations(usage.count())

    def cpu(_options: CallbackOptions) -> Iterable[Observation]:
        return observations(usage.cpu_seconds())

    def memory(_options: CallbackOptions) -> Iterable[Observation]:
        return observations(usage.memory())

    meter.create_observable_up_down_counter("efo.child.count", [count], "{process}", "Child processes that run.")
    meter.create_observable_counter("efo.child.cpu.time", [cpu], "s", "CPU time of child processes, ended ones too.")
    meter.create_observable_up_down_counter("efo.child.memory.usage", [memory], "By", "Resident memory of them all.")
