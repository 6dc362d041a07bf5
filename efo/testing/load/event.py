"""One shard's event as a template: numbers and times are written into it, and its CRC follows without being made anew.

CRC-32 is affine: what changing one byte does to the CRC of a message depends on the place, on the bits that change and
on the message's length, and on nothing else. So the CRC of the patched message is the old one XOR the effect of each
change. An effect is found once, by the CRC of a message of zeros with that change in it, and kept. All records have
the same length, so that one character of all their sequence numbers is one strided slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from efo.protocol import eventstream
from efo.testing.state.subscriptions import EVENT_HEADERS

CRC_LENGTH: Final = 4
STAMP: Final = "%14.3f"
"""Seconds since the epoch with milliseconds: 14 characters until the year 2286."""
BEHIND: Final = "%12d"
"""JSON allows spaces before a number, so that it can have one length whatever it says."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a record of an event keeps: its data in base64, its partition key, the low digits of its number."""

    data: bytes
    partition_key: str
    low: str


@dataclass(slots=True)
class _Field:
    """Characters that stand at several places, `stride` apart."""

    start: int
    stride: int
    count: int
    text: bytes


class EventTemplate:
    """A SubscribeToShardEvent's whole message, of which `render` makes as many as are asked for.

    `parts`: one for each record; their data and keys must have the same lengths. `high`: the digits with which the
    sequence numbers of all of an event's records begin, of the length that all later ones have.
    """

    def __init__(self, parts: Sequence[Part], high: str) -> None:
        payload, fields = _lay_out(parts, high)
        self._message = bytearray(eventstream.encode(EVENT_HEADERS, payload))
        at = len(self._message) - CRC_LENGTH - len(payload)
        for field in fields:
            field.start += at
        self._stamp, self._number, self._last, self._behind = fields
        self._crc = int.from_bytes(self._message[-CRC_LENGTH:])
        self._zeros_crc = crc32(bytes(len(self._message) - CRC_LENGTH))
        self._effects: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._message)

    def render(self, high: str, stamp: float, millis_behind: int) -> bytes:
        """Return the message of the event whose numbers begin with `high`; `stamp`: seconds since the epoch."""
        for field, text in (
            (self._number, high),
            (self._last, high),
            (self._stamp, STAMP % stamp),
            (self._behind, BEHIND % millis_behind),
        ):
            self._write(field, text.encode())
        self._message[-CRC_LENGTH:] = self._crc.to_bytes(CRC_LENGTH)
        return bytes(self._message)

    def _write(self, field: _Field, text: bytes) -> None:
        if text == field.text:
            return
        if len(text) != len(field.text):
            raise ValueError(f"{text!r} does not fit into {len(field.text)} characters")
        for place, (new, old) in enumerate(zip(text, field.text, strict=True), field.start):
            if new != old:
                _set(self._message, place, field, new)
                self._crc ^= self._effect(place, field, new ^ old)
        field.text = text

    def _effect(self, place: int, field: _Field, bits: int) -> int:
        """Return what changing these bits, at `place` and a stride apart, does to the CRC."""
        effect = self._effects.get((place, bits))
        if effect is None:
            changes = bytearray(len(self._message) - CRC_LENGTH)
            _set(changes, place, field, bits)
            effect = self._effects[place, bits] = crc32(changes) ^ self._zeros_crc
        return effect


def _set(message: bytearray, place: int, field: _Field, value: int) -> None:
    end = place + field.stride * (field.count - 1) + 1
    message[place : end : field.stride] = bytes((value,)) * field.count


def _lay_out(parts: Sequence[Part], high: str) -> tuple[bytes, list[_Field]]:
    """Return the event's JSON and where its times, numbers, last number and MillisBehindLatest stand in it."""
    stamp, behind = STAMP % 0, BEHIND % 0
    records, stamps, numbers = _lay_out_records(parts, high, stamp)
    payload = bytearray(records)
    payload += b'],"MillisBehindLatest":'
    behinds = _Field(len(payload), 1, 1, behind.encode())
    payload += behind.encode() + b',"ContinuationSequenceNumber":"'
    last = _Field(len(payload), 1, 1, high.encode())
    payload += f'{high}{parts[-1].low}"}}'.encode()
    return bytes(payload), [stamps, numbers, last, behinds]


def _lay_out_records(parts: Sequence[Part], high: str, stamp: str) -> tuple[bytes, _Field, _Field]:
    start = b'{"Records":['
    records = [_record(part, high, stamp) for part in parts]
    stride = len(records[0]) + 1
    if any(len(record) + 1 != stride for record in records):
        raise ValueError("the records of a load must all have one length")
    stamps = _Field(len(start) + _value(records[0], b"Timestamp"), stride, len(parts), stamp.encode())
    numbers = _Field(len(start) + _value(records[0], b"SequenceNumber") + 1, stride, len(parts), high.encode())
    return start + b",".join(records), stamps, numbers


def _value(record: bytes, name: bytes) -> int:
    """Return where in the JSON of a record the value of the member begins whose name ends so."""
    end_of_name = name + b'":'
    return record.index(end_of_name) + len(end_of_name)


def _record(part: Part, high: str, stamp: str) -> bytes:
    """Return the JSON of a record (AWS: Record), its members in the order in which the fake writes them."""
    return (
        f'{{"ApproximateArrivalTimestamp":{stamp},"Data":"'.encode()
        + part.data
        + f'","PartitionKey":"{part.partition_key}","SequenceNumber":"{high}{part.low}",'.encode()
        + b'"EncryptionType":"NONE"}'
    )
