"""What the workers reported, which leases moved, and the comparison with what was put. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from efo.model import Checkpoint, Lease, Record
from proofs.interop.clients.load import number_of

KCL: Final = "kcl"
EFO: Final = "efo"
"""The prefixes of worker names."""


class ReportedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record as a worker reported it. `at`: its time of arrival, in microseconds since the epoch."""

    at: int
    shard: str
    sequence: str
    key: str | None
    data: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ReportedRecord).decode


def line_of(record: ReportedRecord) -> bytes:
    """Return the output line for a record."""
    return _encode(record) + b"\n"


def record_of(line: bytes) -> ReportedRecord:
    """Return the record of an output line. Raise msgspec.DecodeError if the line has another format."""
    return _decode(line)


@dataclass(frozen=True, slots=True)
class Move:
    """A lease that moved from one holder to another.

    `after`: when the old holder was last seen, in microseconds since the epoch. `checkpoint`: the checkpoint seen then.
    """

    shard: str
    old: str
    new: str
    after: int
    checkpoint: Checkpoint


@dataclass(slots=True)
class Moves:
    """The moves of leases between successive scans of the lease table."""

    moves: list[Move] = field(default_factory=list)
    _last: dict[str, tuple[str, int, Checkpoint]] = field(default_factory=dict)

    def add_scan(self, leases: Iterable[Lease], at: int) -> None:
        """Add a scan of the lease table. `at`: its time, in microseconds since the epoch."""
        for lease in leases:
            if lease.holder is None or lease.checkpoint == Checkpoint.SHARD_END:
                continue
            last = self._last.get(lease.key)
            if last is not None and last[0] != lease.holder:
                self.moves.append(Move(lease.key, last[0], lease.holder, last[1], last[2]))
            self._last[lease.key] = lease.holder, at, lease.checkpoint

    def count(self, from_kind: str, to_kind: str) -> int:
        """Count the moves from the workers of one library to those of the other."""
        return sum(move.old.startswith(from_kind) and move.new.startswith(to_kind) for move in self.moves)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The figures. `duplicates`: records that were reported again, as a SIGKILL causes.

    `reread`: records that a new holder read although the old one had checkpointed them. Must be 0.
    """

    records: int
    lost: int
    order_violations: int
    leases_moved_to_efo: int
    leases_moved_to_kcl: int
    duplicates: int
    reread: int

    @property
    def passed(self) -> bool:
        """Whether nothing is lost, out of order or reread, and leases moved both ways."""
        faults = self.lost + self.order_violations + self.reread
        return self.records > 0 and faults == 0 and min(self.leases_moved_to_efo, self.leases_moved_to_kcl) > 0


def compare(
    reported: Mapping[str, Sequence[ReportedRecord]], expected: Mapping[str, Sequence[Record]], moves: Moves
) -> Comparison:
    """Compare the records that each worker reported with those that were put into each shard."""
    put = {
        (shard, record.sequence_number): (record.partition_key, record.data)
        for shard, records in expected.items()
        for record in records
    }
    lines = sorted((line for lines in reported.values() for line in lines), key=lambda line: line.at)
    first: dict[tuple[str, str], ReportedRecord] = {}
    for line in lines:
        first.setdefault((line.shard, line.sequence), line)
    intact = sum(put.get(place) == (line.key, line.data) for place, line in first.items())
    return Comparison(
        records=len(put),
        lost=len(put) - intact,
        order_violations=_order_violations(first.values()),
        leases_moved_to_efo=moves.count(KCL, EFO),
        leases_moved_to_kcl=moves.count(EFO, KCL),
        duplicates=len(lines) - len(first),
        reread=sum(_reread(move, reported.get(move.new, ())) for move in moves.moves),
    )


def _order_violations(records: Iterable[ReportedRecord]) -> int:
    """Count the records that follow a later record of their key. `records`: each one where it was first reported."""
    violations = 0
    latest: dict[str | None, int] = {}
    for record in records:
        number = number_of(record.data)
        violations += number < latest.get(record.key, -1)
        latest[record.key] = max(number, latest.get(record.key, -1))
    return violations


def _reread(move: Move, records: Iterable[ReportedRecord]) -> int:
    return sum(
        record.shard == move.shard and record.at > move.after and Checkpoint(record.sequence) <= move.checkpoint
        for record in records
    )
