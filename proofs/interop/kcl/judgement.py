"""What the workers said, which leases moved, and the judgement on both. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from efo.model import SHARD_END, Checkpoint, Lease, Record
from proofs.interop.clients.load import number_of

KCL: Final = "kcl"
EFO: Final = "efo"
"""How the names of workers begin."""


class Heard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record as a worker had it. `at`: when, in microseconds since the epoch, by the clock of the machine."""

    at: int
    shard: str
    sequence: str
    key: str
    data: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Heard).decode


def line_of(heard: Heard) -> bytes:
    """Return the line that says a record."""
    return _encode(heard) + b"\n"


def heard_of(line: bytes) -> Heard:
    """Return the record of a line. Raises msgspec.DecodeError: it is none of a worker's."""
    return _decode(line)


@dataclass(frozen=True, slots=True)
class Move:
    """A lease that went from one worker to another. `after`: the last time at which the old one was seen to have it.

    `checkpoint`: how far the shard was done at that time, at least.
    """

    shard: str
    old: str
    new: str
    after: int
    checkpoint: Checkpoint


@dataclass(slots=True)
class Moves:
    """Who had which lease, from one look at the table to the next."""

    moves: list[Move] = field(default_factory=list)
    _last: dict[str, tuple[str, int, Checkpoint]] = field(default_factory=dict)

    def look(self, leases: Iterable[Lease], at: int) -> None:
        """Take what the table held at a time, in microseconds since the epoch."""
        for lease in leases:
            if lease.holder is None or lease.checkpoint == SHARD_END:
                continue
            last = self._last.get(lease.key)
            if last is not None and last[0] != lease.holder:
                self.moves.append(Move(lease.key, last[0], lease.holder, last[1], last[2]))
            self._last[lease.key] = lease.holder, at, lease.checkpoint

    def count(self, from_kind: str, to_kind: str) -> int:
        """Count the moves from one library's workers to the other's."""
        return sum(move.old.startswith(from_kind) and move.new.startswith(to_kind) for move in self.moves)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures. `duplicates`: records that were said more than once, which a kill -9 makes.

    `reread`: records that a new owner read although the old one had checkpointed them: none may be.
    """

    records: int
    lost: int
    order_violations: int
    leases_moved_to_efo: int
    leases_moved_to_kcl: int
    duplicates: int
    reread: int

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost or out of order, and leases moved both ways, each from its checkpoint."""
        faults = self.lost + self.order_violations + self.reread
        return self.records > 0 and faults == 0 and min(self.leases_moved_to_efo, self.leases_moved_to_kcl) > 0


def judge(heard: Mapping[str, Sequence[Heard]], truth: Mapping[str, Sequence[Record]], moves: Moves) -> Verdict:
    """Compare what each worker said with what was put, by shard."""
    put = {
        (shard, record.sequence_number): (record.partition_key, record.data)
        for shard, records in truth.items()
        for record in records
    }
    said = sorted((line for lines in heard.values() for line in lines), key=lambda line: line.at)
    first: dict[tuple[str, str], Heard] = {}
    for line in said:
        first.setdefault((line.shard, line.sequence), line)
    intact = sum(put.get(place) == (line.key, line.data) for place, line in first.items())
    return Verdict(
        records=len(put),
        lost=len(put) - intact,
        order_violations=_order_violations(first.values()),
        leases_moved_to_efo=moves.count(KCL, EFO),
        leases_moved_to_kcl=moves.count(EFO, KCL),
        duplicates=len(said) - len(first),
        reread=sum(_reread(move, heard.get(move.new, ())) for move in moves.moves),
    )


def _order_violations(lines: Iterable[Heard]) -> int:
    """Count the records that come after a later one of their key. Each is judged where it was first said."""
    violations = 0
    latest: dict[str, int] = {}
    for line in lines:
        number = number_of(line.data)
        violations += number < latest.get(line.key, -1)
        latest[line.key] = max(number, latest.get(line.key, -1))
    return violations


def _reread(move: Move, lines: Iterable[Heard]) -> int:
    return sum(
        line.shard == move.shard and line.at > move.after and Checkpoint(line.sequence) <= move.checkpoint
        for line in lines
    )
