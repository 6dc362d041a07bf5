"""What a topic of the log holds, for metrics and for problems: from its maintenance, and from its disk."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from efo_service.log.maintenance import MaintenanceReport
from efo_service.log.retention import RetentionRules

READER: Final = "efo.reader"
Values = Callable[[], Iterator[tuple[float, str]]]
"""Returns values, each with the name of its reader; empty if it has none."""
_HELD_FACTOR: Final = 2.0
"""A reader is a problem if the log has so many times what its limits allow."""
_TREND_SECONDS: Final = 3600.0
_MIN_TREND_SECONDS: Final = 60.0
_SOON: Final = 4 * 3600.0
"""Seconds until the disk is full, below which it is a problem."""
_ROOMY: Final = 0.4
"""The share of the disk that is free, above which the time until it is full is none: a burst does not go on so long."""
_LOW: Final = 0.05
"""The share of the disk that is free, below which it is a problem."""
_MIB: Final = 1024 * 1024


class Disk(NamedTuple):
    """The file system of the log. Sizes in bytes."""

    free: int
    total: int


def disk_of(root: Path) -> Disk:
    """Return the file system of a directory. Raises OSError."""
    found = os.statvfs(root)
    return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


class LogState:
    """The state of one topic. `name`: where it is, for people. The event loop writes it, exporters' threads read it."""

    def __init__(self, name: str, topic: str, rules: RetentionRules) -> None:
        self._name = name
        self._topic = topic
        self._rules = rules
        self._report: MaintenanceReport | None = None
        self._now = 0.0
        self._disks: deque[tuple[float, Disk]] = deque()

    def found(self, report: MaintenanceReport, now: float) -> None:
        """Note what a pass of maintenance found. `now`: seconds since the epoch."""
        self._report, self._now = report, now

    def measured(self, disk: Disk, now: float) -> None:
        """Note how full the disk is."""
        self._now = now
        kept = [(at, one) for at, one in self._disks if at >= now - _TREND_SECONDS and at < now]
        self._disks = deque([*kept, (now, disk)])

    @property
    def seconds_until_full(self) -> float | None:
        """When the disk is full, at the rate of the last hour; None if it does not fill, or for less than a minute."""
        disks = list(self._disks)
        if not disks:
            return None
        (since, first), (until, last) = disks[0], disks[-1]
        lost = first.free - last.free
        return last.free * (until - since) / lost if lost > 0 and until - since >= _MIN_TREND_SECONDS else None

    @property
    def is_filling(self) -> bool:
        """Whether the disk is nearly full, or soon will be."""
        if not self._disks:
            return False
        _, disk = self._disks[-1]
        seconds = self.seconds_until_full
        share = disk.free / max(1, disk.total)
        return share < _LOW or (share < _ROOMY and seconds is not None and seconds < _SOON)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong, in sentences with their remedies."""
        report = self._report
        if report is not None and report.held_by and (factor := self._factor(report)) >= _HELD_FACTOR:
            reader = max(report.held_by, key=lambda name: (report.held_by[name], name))
            last = report.committed.get(reader)
            when = "its file is invalid" if last is None else f"it committed last at {_text(last)}"
            yield (
                f"the log {self._name} has {factor:.1f} times what its retention allows, since the reader {reader} has "
                f"not read {_size(report.held_by[reader])} of it ({when}): start that reader, or forget it with "
                f"`efo log readers remove {reader} --topic {self._topic}`"
            )
        yield from self._disk_problems()

    def _disk_problems(self) -> Iterator[str]:
        if self.is_filling:
            _, disk = self._disks[-1]
            seconds = self.seconds_until_full
            rate = "" if seconds is None else f", and is full in {_duration(seconds)} at the rate of the last hour"
            yield (
                f"the disk of the log {self._name} has {disk.free // _MIB:,} of {disk.total // _MIB:,} MiB free{rate}: "
                "free some space, lower [relay] retention_bytes or retention_hours, or look whether a reader holds the "
                "log (`efo log readers list`)"
            )

    def _factor(self, report: MaintenanceReport) -> float:
        """Return how many times its limits the log is large or old."""
        size = report.size / self._rules.size if self._rules.size else 0.0
        oldest = report.oldest_commit
        age = (self._now - oldest) / self._rules.seconds if self._rules.seconds and oldest is not None else 0.0
        return max(size, age)

    def measure(self, provider: MeterProvider) -> None:
        """Export the state. What is not known has no series."""
        meter = provider.get_meter("efo.service")
        for name, unit, description, values in (
            ("efo.log.size", "By", "Bytes of the topic.", self._sizes),
            ("efo.log.segments", "{segment}", "Segments of the topic, without superseded ones.", self._segments),
            ("efo.log.oldest.age", "s", "Seconds since the commit of the oldest segment.", self._ages),
            ("efo.log.held_back", "By", "Bytes that have expired and wait for a reader.", self._held),
            ("efo.log.reader.lag", "{record}", "Records that a named reader has not committed.", self._lags),
            ("efo.log.disk.free", "By", "Free bytes of the log's file system.", self._free),
            ("efo.log.disk.size", "By", "Bytes of the log's file system.", self._total),
            ("efo.log.disk.full_in", "s", "Seconds until it is full, at the rate of the last hour.", self._full_in),
        ):
            meter.create_observable_gauge(name, [partial(self._observe, values)], unit, description)

    def _observe(self, values: Values, _options: CallbackOptions) -> Iterable[Observation]:
        for value, reader in values():
            attributes = {"messaging.destination.name": self._topic}
            yield Observation(value, {**attributes, READER: reader} if reader else attributes)

    def _sizes(self) -> Iterator[tuple[float, str]]:
        if (report := self._report) is not None:
            yield report.size, ""

    def _segments(self) -> Iterator[tuple[float, str]]:
        if (report := self._report) is not None:
            yield report.segments, ""

    def _ages(self) -> Iterator[tuple[float, str]]:
        if (report := self._report) is not None and report.oldest_commit is not None:
            yield max(0.0, self._now - report.oldest_commit), ""

    def _held(self) -> Iterator[tuple[float, str]]:
        if (report := self._report) is not None:
            yield from ((report.held_by.get(reader, 0), reader) for reader in report.lags)

    def _lags(self) -> Iterator[tuple[float, str]]:
        if (report := self._report) is not None:
            yield from ((lag, reader) for reader, lag in report.lags.items())

    def _free(self) -> Iterator[tuple[float, str]]:
        for _, disk in list(self._disks)[-1:]:
            yield disk.free, ""

    def _total(self) -> Iterator[tuple[float, str]]:
        for _, disk in list(self._disks)[-1:]:
            yield disk.total, ""

    def _full_in(self) -> Iterator[tuple[float, str]]:
        if (seconds := self.seconds_until_full) is not None:
            yield seconds, ""


def _size(count: int) -> str:
    return f"{count // _MIB:,} MiB" if count >= _MIB else f"{count:,} bytes"


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min"  # noqa: PLR2004 - 1.5 hours
