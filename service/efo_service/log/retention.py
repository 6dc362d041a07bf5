"""Retention: which segments have expired. Pure.

Whole segments expire, the oldest first. The newest segment of a partition never does, since it says how far its shard
has been read. A segment of which some reader may still want a record stays until the reader has committed past it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from efo_service.log.files import SizedSegment


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """When segments expire. `seconds`: age of the last record's commit. `size`: bytes of the topic. None: never."""

    seconds: float | None = None
    size: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether anything ever expires."""
        return self.seconds is not None or self.size is not None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment that may expire. `committed_at`: its last record's commit, epoch seconds."""

    partition: int
    sized: SizedSegment
    committed_at: float


@dataclass(frozen=True, slots=True)
class Retention:
    """The segments that have expired, in the order to remove them, and those that only a reader holds back."""

    expired: tuple[Candidate, ...]
    waiting: tuple[Candidate, ...]

    @property
    def held_back(self) -> int:
        """The bytes that only a reader holds back."""
        return sum(one.sized.size for one in self.waiting)

    def held_by(self, readers: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
        """Return how many of these bytes each reader has not read. `readers`: the offsets of each, by partition."""
        held = {
            name: sum(one.sized.size for one in self.waiting if one.sized.segment.end > offsets.get(one.partition, 0))
            for name, offsets in readers.items()
        }
        return {name: size for name, size in held.items() if size}


def plan_retention(
    candidates: Sequence[Candidate], total: int, rules: RetentionRules, floors: Mapping[int, int | None], now: float
) -> Retention:
    """Decide what expires. `total`: the topic's bytes. `floors`: by partition, see `reader_offsets.floor`."""
    due: list[Candidate] = []
    for committed_at, candidate in sorted(_by_commit_time(candidates), key=lambda one: (one[0], *_place(one[1]))):
        is_old = rules.seconds is not None and committed_at < now - rules.seconds
        is_over_size = rules.size is not None and total > rules.size
        if is_old or is_over_size:
            due.append(candidate)
            total -= candidate.sized.size
    removable = {
        partition: set(takewhile(lambda one: _is_read(one, floors), (one for one in due if one.partition == partition)))
        for partition in {one.partition for one in due}
    }
    expired = tuple(one for one in due if one in removable[one.partition])
    return Retention(expired, tuple(one for one in due if one not in removable[one.partition]))


def _place(one: Candidate) -> tuple[int, int]:
    return one.partition, one.sized.segment.base


def _by_commit_time(candidates: Sequence[Candidate]) -> Iterator[tuple[float, Candidate]]:
    """Yield each candidate with its commit time, never earlier than that of a segment before it in its partition.

    A clock that was set back would otherwise let a later segment expire first, and leave a gap.
    """
    newest: dict[int, float] = {}
    for one in sorted(candidates, key=_place):
        newest[one.partition] = max(newest.get(one.partition, one.committed_at), one.committed_at)
        yield newest[one.partition], one


def _is_read(candidate: Candidate, floors: Mapping[int, int | None]) -> bool:
    floor = floors[candidate.partition]
    return floor is None or candidate.sized.segment.end <= floor
