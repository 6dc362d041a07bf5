"""Parses event-stream messages to SubscribeToShard events and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import msgspec

from efo.checks import shown
from efo.errors import EventError, ServiceError
from efo.model import MAX_SEQUENCE_DIGITS, ChildShard, Record, is_decimal, is_shard_id
from efo.protocol.eventstream import EventStreamMessage
from efo.protocol.service_errors import service_error
from efo.third_party_errors import reason_of


class SubscribeToShardEvent(msgspec.Struct, frozen=True, rename="pascal"):
    """One event, as the service sends it (AWS: SubscribeToShardEvent).

    `continuation_sequence_number`: None at the end of the shard. Then the event has `child_shards` (rule R2).
    """

    records: tuple[Record, ...]
    millis_behind_latest: int
    continuation_sequence_number: str | None = None
    child_shards: tuple[ChildShard, ...] | None = None

    @property
    def is_shard_end(self) -> bool:
        """Whether this is the last event of a shard that was split or merged."""
        return self.continuation_sequence_number is None


class UntimedRecord(msgspec.Struct, frozen=True, rename="pascal"):
    """A record with no more than AWS's model requires: SequenceNumber and Data."""

    sequence_number: str
    data: bytes
    partition_key: str | None = None
    approximate_arrival_timestamp: float | None = None
    encryption_type: str | None = None

    def with_timestamps(self) -> Record:
        """Return the record, with 0 for a missing arrival time."""
        at = self.approximate_arrival_timestamp or 0.0
        return Record(self.sequence_number, at, self.data, self.partition_key, self.encryption_type)


class _UntimedEvent(msgspec.Struct, frozen=True, rename="pascal"):
    """An event whose records may have no arrival time."""

    records: tuple[UntimedRecord, ...]
    millis_behind_latest: int
    continuation_sequence_number: str | None = None
    child_shards: tuple[ChildShard, ...] | None = None

    def with_timestamps(self) -> SubscribeToShardEvent:
        """Return the event, with 0 for missing arrival times."""
        records = tuple(record.with_timestamps() for record in self.records)
        return SubscribeToShardEvent(
            records, self.millis_behind_latest, self.continuation_sequence_number, self.child_shards
        )


class _ErrorBody(msgspec.Struct, frozen=True):
    """The body of an exception frame or an HTTP error response. AWS sends `message`, some servers send `Message`."""

    type: str = msgspec.field(name="__type", default="")
    message: str | None = None
    capital_message: str | None = msgspec.field(name="Message", default=None)


Parsed: TypeAlias = SubscribeToShardEvent | ServiceError | None

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""msgspec raises these for invalid JSON, wrong types, and nesting beyond the interpreter's recursion limit."""

_VALID_LENGTHS: Final = frozenset(range(1, MAX_SEQUENCE_DIGITS + 1))

_EVENT: Final = msgspec.json.Decoder(SubscribeToShardEvent)
_UNTIMED_EVENT: Final = msgspec.json.Decoder(_UntimedEvent)
_ERROR_BODY: Final = msgspec.json.Decoder(_ErrorBody)


def parse_message(message: EventStreamMessage) -> Parsed:
    """Return the event of a message, the error that ends the subscription, or None.

    None stands for the initial response, and for messages and events of types that efo does not know: AWS may add some.
    Raises EventError if the message is invalid.
    """
    headers = message.headers
    match headers.get(":message-type"):
        case "event":
            if headers.get(":event-type") != "SubscribeToShardEvent":
                return None
            return _parse_event(message.payload)
        case "exception":
            code = str(headers.get(":exception-type", "UnknownException"))
            return service_error(code, _parse_error_body(message.payload).message or "")
        case "error":
            return service_error(
                str(headers.get(":error-code", "UnknownError")), str(headers.get(":error-message", ""))
            )
        case str():
            return None
        case other:
            raise EventError(f"the message type is {shown(other)}: expected a text, such as event")


def parse_error_response(status: int, body: bytes) -> ServiceError:
    """Return the error of an HTTP response whose status is not 200. The body may have any content."""
    error_body = _parse_error_body(body)
    return service_error(error_body.type or f"HTTP{status}", error_body.message or "", status=status)


def _parse_error_body(payload: bytes | memoryview) -> _ErrorBody:
    try:
        error_body = _ERROR_BODY.decode(payload)
    except DECODE_ERRORS:
        # Not shown: what is no error of AWS may be anybody's page, which repeats the request with its headers.
        return _ErrorBody(message=f"a response of {len(payload)} bytes that is no error of AWS" if payload else "")
    return _ErrorBody(type=error_body.type, message=error_body.message or error_body.capital_message)


def _parse_event(payload: bytes | memoryview) -> SubscribeToShardEvent:
    try:
        event = _decode_event(payload)
    except DECODE_ERRORS as error:
        raise EventError(f"the event cannot be parsed: {reason_of(error)}") from None
    check_event(event)
    check_sequence_numbers(event.records)
    return event


def event_of(records: Sequence[Record], rest: bytes) -> SubscribeToShardEvent | None:
    """Return the event whose records the native step has read, without `check_event`. `rest`: the object without them.

    None if the Python step has to tell what is wrong besides the records.
    """
    try:
        event = _EVENT.decode(rest)
    except DECODE_ERRORS:
        return None
    # Packed records are what a tuple of them is, but for its type: only readers that asked for them see them.
    return SubscribeToShardEvent(
        cast("tuple[Record, ...]", records),
        event.millis_behind_latest,
        event.continuation_sequence_number,
        event.child_shards,
    )


def check_event(event: SubscribeToShardEvent) -> None:
    """Raise EventError unless the event goes on or ends as rule R2 says."""
    children = event.child_shards or ()
    continuation = event.continuation_sequence_number
    # Rule R2. To end the shard at such an event would lose records.
    if (continuation is None) != bool(children):
        found = "neither a continuation nor child shards" if continuation is None else "a continuation and child shards"
        raise EventError(f"the event has {found}: exactly one of them is allowed")
    if continuation is not None and not is_decimal(continuation):
        raise EventError(f"the continuation {continuation[:200]!r} is not a sequence number")
    if children:
        check_children(children)


def check_children(children: tuple[ChildShard, ...]) -> None:
    """Raise EventError unless each child shard has an id and parents, and decimal hash keys."""
    for child in children:
        if not all(map(is_shard_id, (child.shard_id, *child.parent_shards))):
            raise EventError("the id of a child shard, or of its parent, is none")
        if not child.parent_shards:
            raise EventError("a child shard has no parents")
        keys = child.hash_key_range
        if not (is_decimal(keys.starting_hash_key) and is_decimal(keys.ending_hash_key)):
            raise EventError(f"the hash keys of child shard {child.shard_id} are not decimal integers")


def check_sequence_numbers(records: tuple[Record, ...]) -> None:
    """Raise EventError unless `is_decimal` is true for each sequence number."""
    # All at once: that takes a fifth of the time. The digits of bytes are faster to check than those of a str.
    if len(records) == 1 and is_decimal(records[0].sequence_number):
        return
    numbers = [record.sequence_number for record in records]
    joined = "".join(numbers)
    are_digits = joined.isascii() and joined.encode().isdigit()
    if not numbers or (are_digits and {len(each) for each in numbers} <= _VALID_LENGTHS):
        return
    number = next(number for number in numbers if not is_decimal(number))
    raise EventError(f"the sequence number {number[:200]!r} is not a decimal integer")


def _decode_event(payload: bytes | memoryview) -> SubscribeToShardEvent:
    try:
        return _EVENT.decode(payload)
    except msgspec.ValidationError:
        return _UNTIMED_EVENT.decode(payload).with_timestamps()
