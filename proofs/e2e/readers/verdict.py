"""Whether a read of the log has each record once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """What reads had: records that were `lost` before the end of a partition, `duplicated`, or `wrong`."""

    reads: int = 0
    records: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0

    @property
    def passed(self) -> bool:
        """Whether there was something, and all of it was right."""
        return bool(self.records) and not (self.lost or self.duplicated or self.wrong)

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.reads + other.reads,
            self.records + other.records,
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            self.wrong + other.wrong,
        )


def ends_of(rows: Iterable[Sequence[int]]) -> dict[int, int]:
    """Return the offset after the last one that was read, by partition."""
    ends: dict[int, int] = {}
    for partition, offset, _ in rows:
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    return ends


def judge(rows: Sequence[Sequence[int]], before: Mapping[int, int] | None = None) -> Verdict:
    """Return the verdict of one read: the partition, offset and value of each row. A value must be its offset.

    `before`: what an earlier read found as ends.
    """
    seen = {(partition, offset) for partition, offset, _ in rows}
    ends = {**(before or {}), **ends_of(rows)}
    expected = sum(max(end, (before or {}).get(partition, 0)) for partition, end in ends.items())
    return Verdict(
        reads=1,
        records=len(rows),
        lost=expected - len(seen),
        duplicated=len(rows) - len(seen),
        wrong=sum(offset != value for _, offset, value in rows),
    )
