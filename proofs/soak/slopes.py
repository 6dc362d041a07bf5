"""Whether a measurement grows over time. Pure.

Faults, compaction and the garbage collector raise peaks that pass. A leak raises the troughs. So the lowest value of
each of `PARTS` equal parts of the time is taken. The slope of the line through these troughs is the median of those
between all pairs (Theil and Sen): up to 29 % of the troughs may be outliers.

The first third of a run is warm-up and is left out: imports, caches, the allocator's arenas, and leases of finished
shards, which are deleted after ten minutes. What the line rises by from there to the end must stay within an allowance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final

PARTS: Final = 12
WARM_UP: Final = 1 / 3
JUDGED_AFTER: Final = 600.0
"""Seconds of a run below which growth is reported and not judged: caches still fill, and a part holds few samples."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much a measurement may grow over the fitted time: a share of its median, plus a number in its own unit."""

    unit: str
    share: float
    plus: float


# A leak of one object for each event, record, fault or reshard exceeds them in an hour of the default load: a million
# records, some thousand events a minute, 300 faults and 30 reshards. Why not 0: the allocator does not return all it
# took; the number of shards that are read differs by one or two with the reshards, each with some tasks; a connection
# that replaces another exists beside it for a while. Resident memory may grow by what compaction comes to need: it
# merges segments that grow up to 32 MiB, and no allocator returns all of it. That is wide, and would hide a small leak
# in C. One of Python's objects is seen in the number of blocks that they use.
ALLOWANCES: Final[Mapping[str, Allowance]] = {
    "rss": Allowance("MB", 0.03, 40.0),
    "blocks": Allowance("", 0.01, 4000.0),
    "tasks": Allowance("", 0.05, 8.0),
    "descriptors": Allowance("", 0.05, 4.0),
    "threads": Allowance("", 0.0, 2.0),
    "lag": Allowance("s", 0.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class Growth:
    """The line through the troughs: its `start` and `end` as (seconds, value), and what it may grow by, `allowed`."""

    start: tuple[float, float]
    end: tuple[float, float]
    allowed: float

    @property
    def grown(self) -> float:
        """How much the line rises over the fitted time."""
        return self.end[1] - self.start[1]

    @property
    def is_flat(self) -> bool:
        """Whether that is allowed."""
        return self.grown <= self.allowed

    @property
    def per_hour(self) -> float:
        """The slope per hour."""
        seconds = self.end[0] - self.start[0]
        return self.grown / seconds * 3600 if seconds else 0.0


def growth(samples: Sequence[tuple[float, float]], allowance: Allowance) -> Growth:
    """Fit the samples, pairs of seconds and value in the order of time. Raises ValueError if they are too few."""
    begin, end = samples[0][0], samples[-1][0]
    fitted = [sample for sample in samples if sample[0] >= begin + (end - begin) * WARM_UP]
    troughs = _troughs(fitted)
    if len(troughs) < 2:  # noqa: PLR2004 - a line needs two points
        raise ValueError(f"{len(samples)} samples are too few for a slope")
    slope = median((later[1] - first[1]) / (later[0] - first[0]) for first, later in combinations(troughs, 2))
    base = median(value - slope * at for at, value in troughs)
    middle = median(value for _, value in fitted)
    first, last = fitted[0][0], fitted[-1][0]
    allowed = abs(middle) * allowance.share + allowance.plus
    return Growth((first, base + slope * first), (last, base + slope * last), allowed)


def _troughs(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    first, length = samples[0][0], samples[-1][0] - samples[0][0]
    lowest: dict[int, tuple[float, float]] = {}
    for sample in samples:
        part = min(PARTS - 1, int((sample[0] - first) / length * PARTS)) if length else 0
        if part not in lowest or sample[1] < lowest[part][1]:
            lowest[part] = sample
    return list(lowest.values())
