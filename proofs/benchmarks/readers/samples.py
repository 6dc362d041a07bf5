"""Samples of what a client program has read so far, printed as lines of JSON, and the windows between them. Pure.

A sample is taken by the client process itself, when it has handled a batch. So CPU time and counts belong to the same
moment, and the distance between two samples is exact, whatever else the machine does.
"""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

EVERY = 0.05
"""Seconds between two samples of a process."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Totals of one process. `at`: the machine's monotonic clock. `delays_ms`: of the records since the last sample.

    `shards`: how many shards it has read something of, if it counts them.
    """

    at: float
    process: int
    records: int
    payload_bytes: int
    events: int
    cpu_seconds: float
    delays_ms: Sequence[float] = ()
    shards: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """What all processes of a client did between two moments."""

    records: int
    payload_bytes: int
    events: int
    cpu_seconds: float
    records_per_second: float
    delays_ms: tuple[float, ...]

    @property
    def mb_per_cpu_second(self) -> float:
        """Megabytes (10^6) of payload per second of CPU time."""
        return self.payload_bytes / self.cpu_seconds / 1e6

    @property
    def records_per_cpu_second(self) -> float:
        """User records per second of CPU time."""
        return self.records / self.cpu_seconds


class Sampler:
    """Counts what was read, and prints a sample now and then."""

    def __init__(self) -> None:
        self.delays_ms: list[float] = []
        self._records = self._payload_bytes = self._events = 0
        self._shards: set[str] = set()
        self._due = 0.0
        self._lock = threading.Lock()
        self.last: object = None

    def add(self, records: int, payload_bytes: int, last: object = None, shard: str = "") -> None:
        """Count an event. `last`: any value that was read, so that reading it has a use."""
        with self._lock:
            self.last = last
            self._shards.add(shard)
            self._events += 1
            self._records += records
            self._payload_bytes += payload_bytes
            now = time.monotonic()
            if now >= self._due:
                self._due = now + EVERY
                self._print(now)

    def _print(self, now: float) -> None:
        delays, self.delays_ms = self.delays_ms, []
        sample = Sample(
            now,
            os.getpid(),
            self._records,
            self._payload_bytes,
            self._events,
            cpu_seconds(),
            delays,
            len(self._shards),
        )
        # One write: several processes may share a pipe.
        os.write(1, json.dumps(asdict(sample)).encode() + b"\n")


def cpu_seconds() -> float:
    """Return user and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def parse(line: bytes) -> Sample:
    """Return the sample of a line. Raises ValueError."""
    return Sample(**json.loads(line))


def started_at(samples: Sequence[Sample], processes: int, shards: int = 0) -> float | None:
    """Return when so many processes had printed a sample, and together had read so many shards; None if not yet."""
    read: dict[int, int] = {}
    for sample in samples:
        read[sample.process] = sample.shards
        if len(read) >= processes and sum(read.values()) >= shards:
            return sample.at
    return None


def window(samples: Sequence[Sample], start: float, end: float) -> Window:
    """Return what happened between two moments, from the first to the last sample of each process between them.

    Raises ValueError if no process has two samples with CPU time between them.
    """
    by_process: dict[int, list[Sample]] = {}
    for sample in samples:
        if start <= sample.at <= end:
            by_process.setdefault(sample.process, []).append(sample)
    spans = [(found[0], found[-1]) for found in by_process.values() if found[-1].cpu_seconds > found[0].cpu_seconds]
    if not spans:
        raise ValueError(f"no process printed two samples in {end - start:.1f} s")
    return Window(
        records=sum(last.records - first.records for first, last in spans),
        payload_bytes=sum(last.payload_bytes - first.payload_bytes for first, last in spans),
        events=sum(last.events - first.events for first, last in spans),
        cpu_seconds=sum(last.cpu_seconds - first.cpu_seconds for first, last in spans),
        records_per_second=sum((last.records - first.records) / (last.at - first.at) for first, last in spans),
        delays_ms=tuple(
            delay for between in by_process.values() for sample in between[1:] for delay in sample.delays_ms
        ),
    )
