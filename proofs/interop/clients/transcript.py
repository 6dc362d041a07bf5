"""What a client reported, line by line, and its comparison with what was put. Pure.

A client prints one JSON object per line:

    {"record": {"shard": id, "sequence": digits, "key": text, "data": base64}}; of a user record of an aggregate, also
        "sub": its index in digits, and "explicit": its explicit hash key, or null
    {"shard_end": {"shard": id, "children": [ids], or null if the client does not expose them}}
    {"refused": {"what": one of REFUSED_CALLS, "error": the name of the SDK's exception type}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from efo.model import Record
from proofs.interop.clients.load import number_of

REFUSED_CALLS: Final = {
    "unknown shard": frozenset({"ResourceNotFoundException"}),
    "position without its number": frozenset({"InvalidArgumentException", "ValidationException"}),
    "second subscription": frozenset({"ResourceInUseException"}),
}
"""The calls that every client makes and the fake must refuse, and the exception types that are correct."""


class ReportedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record that the client delivered. `sub`: its index in a KPL aggregate. `explicit`: its explicit hash key."""

    shard: str
    sequence: str
    key: str
    data: bytes
    sub: str = "0"
    explicit: str | None = None


class ReportedEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a shard. `children`: None if the client does not expose them."""

    shard: str
    children: frozenset[str] | None


class ReportedRefusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that was refused."""

    what: str
    error: str


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a client: exactly one member is set."""

    record: ReportedRecord | None = None
    shard_end: ReportedEnd | None = None
    refused: ReportedRefusal | None = None


_decode = msgspec.json.Decoder(Line).decode


@dataclass(slots=True)
class Transcript:
    """Everything that a client reported, in order. `refused`: exception type by call."""

    records: list[ReportedRecord] = field(default_factory=list)
    ends: list[ReportedEnd] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def add_line(self, text: bytes) -> None:
        """Add one line. Raise msgspec.DecodeError if it is not in the module's format."""
        line = _decode(text)
        if line.record is not None:
            self.records.append(line.record)
        if line.shard_end is not None:
            self.ends.append(line.shard_end)
        if line.refused is not None:
            self.refused[line.refused.what] = line.refused.error


@dataclass(frozen=True, slots=True)
class Comparison:
    """The figures of a transcript. `shard_ends`: closed shards whose end was reported once, with the right children."""

    records: int
    lost: int
    duplicated: int
    order_violations: int
    shard_ends: int
    refused_ok: bool


def compare(
    transcript: Transcript, expected: Mapping[str, Sequence[Record]], closed: Mapping[str, frozenset[str]]
) -> Comparison:
    """Compare a transcript with the records that were put, by shard, and with the children of the closed shards.

    A record that arrived with another key or other data counts as lost.
    """
    put = {(shard, record.sequence_number): record for shard, records in expected.items() for record in records}
    seen: set[tuple[str, str]] = set()
    intact = 0
    for record in transcript.records:
        place = record.shard, record.sequence
        true = put.get(place)
        if place not in seen and true is not None:
            intact += (record.key, record.data) == (true.partition_key, true.data)
        seen.add(place)
    ends = [end.shard for end in transcript.ends if _is_correct(end, closed)]
    return Comparison(
        records=len(transcript.records),
        lost=len(put) - intact,
        duplicated=len(transcript.records) - len(seen),
        order_violations=_order_violations(transcript.records),
        shard_ends=sum(ends.count(shard) == 1 for shard in closed) - (len(transcript.ends) - len(ends)),
        refused_ok=transcript.refused.keys() == REFUSED_CALLS.keys()
        and all(transcript.refused[what] in expected for what, expected in REFUSED_CALLS.items()),
    )


def passed(comparison: Comparison, *, records: int, shard_ends: int) -> bool:
    """Return whether nothing is lost, duplicated or out of order, and every refused call had the right error."""
    return comparison == Comparison(records, 0, 0, 0, shard_ends, refused_ok=True)


def _is_correct(end: ReportedEnd, closed: Mapping[str, frozenset[str]]) -> bool:
    return end.shard in closed and end.children in {None, closed[end.shard]}


def _order_violations(records: Sequence[ReportedRecord]) -> int:
    """Count the records out of order: a shard's sequence number, or a key's number, lower than an earlier one."""
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
    """Return a record's number, or 0 for unknown data: that counts as lost, and does not affect the order."""
    try:
        return number_of(data)
    except (ValueError, KeyError, TypeError):
        return 0
