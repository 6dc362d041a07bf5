"""The event of a shard as a template: sequence numbers and times are patched into it, and its CRC is updated.

CRC-32 is affine: the effect of a changed byte on the CRC depends only on its position, on the bits that change, and on
the length of the message. So the CRC of the patched message is the old CRC XOR the effect of each change. An effect
is computed once, from a message of zeros with that change, and cached. All records have the same length, so one
character of all their sequence numbers is one strided slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from efo.protocol import eventstream
from efo.testing.state.subscriptions import EVENT_HEADERS

CRC_LENGTH: Final = 4
TIMESTAMP_FORMAT: Final = "%14.3f"
"""Format of seconds since the epoch with milliseconds: 14 characters until the year 2286."""
BEHIND_FORMAT: Final = "%12d"
"""Format of MillisBehindLatest: JSON allows spaces before a number, so all numbers have the same length."""


@dataclass(frozen=True, slots=True)
class RecordTemplate:
    """The constant parts of a record: its data in base64, its partition key, the low digits of its sequence number."""

    data: bytes
    partition_key: str
    low_digits: str


@dataclass(slots=True)
class _Field:
    """The same characters at `count` positions: the first at `start`, the others `stride` bytes apart."""

    start: int
    stride: int
    count: int
    text: bytes


class EventTemplate:
    """The complete message of a SubscribeToShardEvent; `render` returns it with other sequence numbers and times.

    `records`: their data and partition keys must have the same lengths. `high_digits`: the first digits of the sequence
    numbers of all records of an event; all events must have the same number of them.
    """

    def __init__(self, records: Sequence[RecordTemplate], high_digits: str) -> None:
        payload, fields = _lay_out(records, high_digits)
        self._message = bytearray(eventstream.encode(EVENT_HEADERS, payload))
        at = len(self._message) - CRC_LENGTH - len(payload)
        for field in fields:
            field.start += at
        self._timestamps, self._numbers, self._continuation, self._behind = fields
        self._crc = int.from_bytes(self._message[-CRC_LENGTH:])
        self._zeros_crc = crc32(bytes(len(self._message) - CRC_LENGTH))
        self._effects: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._message)

    def render(self, high_digits: str, timestamp: float, millis_behind: int) -> bytes:
        """Return the message of the event whose sequence numbers start with `high_digits`.

        `timestamp`: arrival time of its records, seconds since the epoch. `millis_behind`: MillisBehindLatest.
        """
        for field, text in (
            (self._numbers, high_digits),
            (self._continuation, high_digits),
            (self._timestamps, TIMESTAMP_FORMAT % timestamp),
            (self._behind, BEHIND_FORMAT % millis_behind),
        ):
            self._write(field, text.encode())
        self._message[-CRC_LENGTH:] = self._crc.to_bytes(CRC_LENGTH)
        return bytes(self._message)

    def _write(self, field: _Field, text: bytes) -> None:
        if text == field.text:
            return
        if len(text) != len(field.text):
            raise ValueError(f"{text!r} does not fit into {len(field.text)} characters")
        for position, (new, old) in enumerate(zip(text, field.text, strict=True), field.start):
            if new != old:
                _set(self._message, position, field, new)
                self._crc ^= self._effect(position, field, new ^ old)
        field.text = text

    def _effect(self, position: int, field: _Field, bits: int) -> int:
        """Return the effect on the CRC of changing these bits of the field's character at `position`."""
        effect = self._effects.get((position, bits))
        if effect is None:
            changes = bytearray(len(self._message) - CRC_LENGTH)
            _set(changes, position, field, bits)
            effect = self._effects[position, bits] = crc32(changes) ^ self._zeros_crc
        return effect


def _set(message: bytearray, position: int, field: _Field, value: int) -> None:
    end = position + field.stride * (field.count - 1) + 1
    message[position : end : field.stride] = bytes((value,)) * field.count


def _lay_out(records: Sequence[RecordTemplate], high_digits: str) -> tuple[bytes, list[_Field]]:
    """Return the event's JSON and its fields: timestamps, sequence numbers, continuation, MillisBehindLatest."""
    timestamp, behind = TIMESTAMP_FORMAT % 0, BEHIND_FORMAT % 0
    start, timestamps, numbers = _lay_out_records(records, high_digits, timestamp)
    payload = bytearray(start)
    payload += b'],"MillisBehindLatest":'
    behind_field = _Field(len(payload), 1, 1, behind.encode())
    payload += behind.encode() + b',"ContinuationSequenceNumber":"'
    continuation = _Field(len(payload), 1, 1, high_digits.encode())
    payload += f'{high_digits}{records[-1].low_digits}"}}'.encode()
    return bytes(payload), [timestamps, numbers, continuation, behind_field]


def _lay_out_records(
    templates: Sequence[RecordTemplate], high_digits: str, timestamp: str
) -> tuple[bytes, _Field, _Field]:
    start = b'{"Records":['
    records = [_record(template, high_digits, timestamp) for template in templates]
    stride = len(records[0]) + 1
    if any(len(record) + 1 != stride for record in records):
        raise ValueError("the records of a load must all have the same length")
    count = len(records)
    timestamps = _Field(len(start) + _value_index(records[0], b"Timestamp"), stride, count, timestamp.encode())
    number_index = _value_index(records[0], b"SequenceNumber") + 1
    numbers = _Field(len(start) + number_index, stride, count, high_digits.encode())
    return start + b",".join(records), timestamps, numbers


def _value_index(record: bytes, name: bytes) -> int:
    """Return the index in a record's JSON of the value of the member whose name ends with `name`."""
    end_of_name = name + b'":'
    return record.index(end_of_name) + len(end_of_name)


def _record(template: RecordTemplate, high_digits: str, timestamp: str) -> bytes:
    """Return the JSON of a record (AWS: Record), with its members in the order that the fake uses."""
    return (
        f'{{"ApproximateArrivalTimestamp":{timestamp},"Data":"'.encode()
        + template.data
        + f'","PartitionKey":"{template.partition_key}",'.encode()
        + f'"SequenceNumber":"{high_digits}{template.low_digits}"}}'.encode()
    )
