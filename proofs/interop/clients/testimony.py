"""What a witness said, line by line, and the judgement on it. Pure.

A witness prints one JSON object per line:

    {"record": {"shard": id, "sequence": digits, "key": text, "data": base64}}
    {"shard_end": {"shard": id, "children": [ids], or null where the client does not tell them}}
    {"refused": {"what": one of REFUSALS, "error": the name of the SDK's exception type}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from efo.model import Record
from proofs.interop.clients.load import number_of

REFUSALS: Final = {
    "unknown shard": frozenset({"ResourceNotFoundException"}),
    "position without its number": frozenset({"InvalidArgumentException", "ValidationException"}),
    "second subscription": frozenset({"ResourceInUseException"}),
}
"""What every witness tries in vain, and which exception types are a right answer."""


class HeardRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record, as the client gave it to the witness."""

    shard: str
    sequence: str
    key: str
    data: bytes


class HeardEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a shard. `children` is None where the client does not tell them."""

    shard: str
    children: frozenset[str] | None


class HeardRefusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that was refused."""

    what: str
    error: str


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a witness: one of its members is there."""

    record: HeardRecord | None = None
    shard_end: HeardEnd | None = None
    refused: HeardRefusal | None = None


_decode = msgspec.json.Decoder(Line).decode


@dataclass(slots=True)
class Testimony:
    """All that a witness said, in its order."""

    records: list[HeardRecord] = field(default_factory=list)
    ends: list[HeardEnd] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)

    def hear(self, text: bytes) -> None:
        """Take one line. Raises msgspec.DecodeError: it is none of the module's."""
        line = _decode(text)
        if line.record is not None:
            self.records.append(line.record)
        if line.shard_end is not None:
            self.ends.append(line.shard_end)
        if line.refused is not None:
            self.refusals[line.refused.what] = line.refused.error


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the testimony is worth, in numbers. `shard_ends`: shards whose end was told once, and rightly."""

    records: int
    lost: int
    duplicated: int
    order_violations: int
    shard_ends: int
    refused_ok: bool


def judge(testimony: Testimony, truth: Mapping[str, Sequence[Record]], closed: Mapping[str, frozenset[str]]) -> Verdict:
    """Compare a testimony with the records that were put, by shard, and with the children of the closed shards.

    A record that came with another key or other data than were put is lost.
    """
    put = {(shard, record.sequence_number): record for shard, records in truth.items() for record in records}
    heard: set[tuple[str, str]] = set()
    intact = 0
    for record in testimony.records:
        place = record.shard, record.sequence
        true = put.get(place)
        if place not in heard and true is not None:
            intact += (record.key, record.data) == (true.partition_key, true.data)
        heard.add(place)
    ends = [end.shard for end in testimony.ends if _is_right(end, closed)]
    return Verdict(
        records=len(testimony.records),
        lost=len(put) - intact,
        duplicated=len(testimony.records) - len(heard),
        order_violations=_order_violations(testimony.records),
        shard_ends=sum(ends.count(shard) == 1 for shard in closed) - (len(testimony.ends) - len(ends)),
        refused_ok=testimony.refusals.keys() == REFUSALS.keys()
        and all(testimony.refusals[what] in right for what, right in REFUSALS.items()),
    )


def is_right(verdict: Verdict, *, records: int, shard_ends: int) -> bool:
    """Tell whether nothing is missing, doubled, out of order or refused wrongly."""
    return verdict == Verdict(records, 0, 0, 0, shard_ends, refused_ok=True)


def _is_right(end: HeardEnd, closed: Mapping[str, frozenset[str]]) -> bool:
    return end.shard in closed and end.children in {None, closed[end.shard]}


def _order_violations(records: Sequence[HeardRecord]) -> int:
    """Count the records that are behind one that came earlier: of their shard by sequence, of their key by number."""
    violations = 0
    sequences: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for record in records:
        sequence, number = int(record.sequence), _number(record.data)
        violations += sequence < sequences.get(record.shard, -1) or number < numbers.get(record.key, -1)
        sequences[record.shard] = max(sequence, sequences.get(record.shard, -1))
        numbers[record.key] = max(number, numbers.get(record.key, -1))
    return violations


def _number(data: bytes) -> int:
    """Return a record's number; data that is none of ours is counted as lost, and has no place in the order."""
    try:
        return number_of(data)
    except (ValueError, KeyError, TypeError):
        return 0
