"""What the log's upkeep is to do: which segments to roll up into one, and which have expired. Pure.

Rolling up. A commit makes a segment however small it is, and a segment has its price: a name to list, a file to open,
five constant pages. Neighbours are put together in tiers, as a log-structured merge does: FAN_IN small ones of a tier
make one of the next, and what has reached ROLLED_BYTES is left alone for good. So a record is written again three
times at most, and a partition has some hundred small segments at most, whatever the rate of its commits.

Retention. Whole segments go, the oldest first, never the newest of a partition (it says how far its shard has come),
and never one of which some reader may still ask for a record: then it waits, and the report says for whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from efo_service.relay.log.segments import Segment

KIB: Final = 1024
MIB: Final = 1024 * KIB
ROLLED_BYTES: Final = 16 * MIB
"""From this size on a segment is left as it is. Two parts below it make less than 32 MiB, so that is the most."""
FAN_IN: Final = 32
TIERS: Final = (64 * KIB, MIB)
"""The upper bounds of the tiers below ROLLED_BYTES; the last one's FAN_IN is reached by bytes first."""
MOST_PARTS: Final = 1024
"""So many are read into memory at once."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A segment and its bytes."""

    segment: Segment
    size: int


def plan_rollup(segments: Sequence[Sized]) -> list[list[Sized]]:
    """Return the groups of neighbours that are to become one segment each.

    `segments`: those of a partition that count, in order, without the newest, which belongs to the writer.
    """
    return [group for run in _small_runs(segments) for group in _plan_run(run)]


def _small_runs(segments: Iterable[Sized]) -> Iterator[list[Sized]]:
    """Yield the longest runs of small segments without a hole between them."""
    run: list[Sized] = []
    for sized in segments:
        is_small = sized.size < ROLLED_BYTES
        if run and not (is_small and run[-1].segment.end == sized.segment.base):
            yield run
            run = []
        if is_small:
            run.append(sized)
    yield run


def _plan_run(run: list[Sized]) -> Iterator[list[Sized]]:
    rest: list[Sized] = []
    size = 0
    for sized in run:
        rest.append(sized)
        size += sized.size
        if size >= ROLLED_BYTES or len(rest) == MOST_PARTS:
            yield rest
            rest, size = [], 0
    least = 0
    for limit in TIERS:
        if groups := list(_tier(rest, least, limit)):
            yield from groups
            return
        least = limit


def _tier(run: Iterable[Sized], least: int, limit: int) -> Iterator[list[Sized]]:
    """Yield neighbours below the limit, from one of this tier to one of this tier, if there are FAN_IN of them.

    Smaller ones in between go along; they do not count, or a large one would be written again for each few of them.
    """
    group: list[Sized] = []
    members = last = 0
    for sized in (*run, None):
        if sized is None or sized.size >= limit:
            if members >= FAN_IN:
                yield group[:last]
            group, members, last = [], 0, 0
        elif sized.size >= least:
            group.append(sized)
            members += 1
            last = len(group)
        elif group:
            group.append(sized)


def sum_of(segments: Iterable[Sized]) -> int:
    """Return the bytes of segments."""
    return sum(sized.size for sized in segments)


# --- retention -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """What may go. `seconds`: since its last record was committed. `size`: bytes of the whole topic. None: never."""

    seconds: float | None = None
    size: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether anything ever goes."""
        return self.seconds is not None or self.size is not None


@dataclass(frozen=True, slots=True)
class Kept:
    """A segment that is not a partition's newest. `committed_at`: of its last record, seconds since the epoch."""

    partition: int
    sized: Sized
    committed_at: float


@dataclass(frozen=True, slots=True)
class Retention:
    """What has expired, in the order to remove it; and the bytes that would, were it not for a reader."""

    expired: tuple[Kept, ...]
    held_back: int


def plan_retention(
    kept: Sequence[Kept], total: int, rules: RetentionRules, floors: Mapping[int, int | None], now: float
) -> Retention:
    """Decide what goes. `total`: the topic's bytes. `floors`: by partition, see `readers.floor`."""
    due: list[Kept] = []
    for committed_at, _, _, one in sorted(_in_time(kept)):
        is_old = rules.seconds is not None and committed_at < now - rules.seconds
        is_too_much = rules.size is not None and total > rules.size
        if is_old or is_too_much:
            due.append(one)
            total -= one.sized.size
    free = {
        partition: set(takewhile(lambda one: _is_read(one, floors), (one for one in due if one.partition == partition)))
        for partition in {one.partition for one in due}
    }
    expired = tuple(one for one in due if one in free[one.partition])
    return Retention(expired, sum_of(one.sized for one in due if one not in free[one.partition]))


def _in_time(kept: Sequence[Kept]) -> Iterator[tuple[float, int, Segment, Kept]]:
    """Yield each with its time; one that the clock, set back, put before an earlier one of its partition gets that's.

    So the order of time is that of the offsets, and no partition gets a hole.
    """
    newest: dict[int, float] = {}
    for one in sorted(kept, key=lambda one: (one.partition, one.sized.segment)):
        newest[one.partition] = max(newest.get(one.partition, one.committed_at), one.committed_at)
        yield newest[one.partition], one.partition, one.sized.segment, one


def _is_read(one: Kept, floors: Mapping[int, int | None]) -> bool:
    at = floors[one.partition]
    return at is None or one.sized.segment.end <= at
