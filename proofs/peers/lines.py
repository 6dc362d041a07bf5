"""The lines that a peer's program prints, and what they add up to. Pure.

    {"t": epoch seconds, "records": n, "bytes": n, "source": name, "latencies": "microseconds ..."}
    {"seen": "key:number ..."}
    {"stopped": epoch seconds, "records": n}

Counts grow from the program's start. A source is one counter: a peer with several processes has several.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line. Exactly one of `t`, `seen` and `stopped` is set."""

    t: float | None = None
    records: int = 0
    bytes: int = 0
    source: str = ""
    latencies: str = ""
    seen: str | None = None
    stopped: float | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of one source at a time."""

    t: float
    records: int
    bytes: int


_decode = msgspec.json.Decoder(Line).decode


@dataclass(slots=True)
class Output:
    """Everything that a program printed. `seen`: each record's key and number, in order."""

    counts: dict[str, list[Counts]] = field(default_factory=dict)
    latencies: list[tuple[float, int]] = field(default_factory=list)
    seen: list[tuple[str, int]] = field(default_factory=list)
    stopped: float | None = None
    first_at: float | None = None
    _expected_at: dict[int, float] = field(default_factory=dict)
    _total: int = 0

    def add_line(self, text: bytes) -> None:
        """Add one line. Raise msgspec.DecodeError or ValueError if it is not in the module's format."""
        line = _decode(text)
        if line.seen is not None:
            self.seen.extend(_numbered(line.seen))
        elif line.stopped is not None:
            self.stopped = line.stopped
        elif line.t is not None:
            self._count(line.t, line)
        else:
            raise ValueError(f"a line with neither t, seen nor stopped: {text!r}")

    @property
    def records(self) -> int:
        """The records of all sources."""
        return self._total

    def reached_at(self, records: int) -> float | None:
        """Return when this many records had arrived, or None. Exact only up to the expected records."""
        return min((t for total, t in self._expected_at.items() if total >= records), default=None)

    def records_per_second(self, start: float, end: float) -> float:
        """Return the sum of the sources' rates between two times, each from its first to its last line between them.

        Raise ValueError if no source has two lines.
        """
        rates = [
            (inside[-1].records - inside[0].records) / (inside[-1].t - inside[0].t)
            for counts in self.counts.values()
            if len(inside := [count for count in counts if start <= count.t <= end]) > 1 and inside[-1].t > inside[0].t
        ]
        if not rates:
            raise ValueError(f"no source printed two lines in {end - start:.1f} s")
        return sum(rates)

    def _count(self, t: float, line: Line) -> None:
        counts = self.counts.setdefault(line.source, [])
        self._total += line.records - (counts[-1].records if counts else 0)
        counts.append(Counts(t, line.records, line.bytes))
        self.latencies.extend((t, int(micros)) for micros in line.latencies.split())
        if self._total:
            self._expected_at.setdefault(self._total, t)
            if self.first_at is None:
                self.first_at = t


def _numbered(seen: str) -> Iterator[tuple[str, int]]:
    for item in seen.split():
        key, _, number = item.rpartition(":")
        yield key, int(number)
