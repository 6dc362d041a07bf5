"""From event-stream messages to SubscribeToShard's events, and to its errors."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from efo.errors import EventError, ServiceError
from efo.model import MAX_SEQUENCE_DIGITS, ChildShard, Record
from efo.protocol.eventstream import Message
from efo.protocol.service_errors import service_error


class SubscribeToShardEvent(msgspec.Struct, frozen=True, rename="pascal"):
    """One event, as the service sends it (AWS: SubscribeToShardEvent).

    `continuation_sequence_number` is None at the end of the shard, where `child_shards` are told (rule R2).
    """

    records: tuple[Record, ...]
    millis_behind_latest: int
    continuation_sequence_number: str | None = None
    child_shards: tuple[ChildShard, ...] | None = None

    @property
    def is_shard_end(self) -> bool:
        """Whether this is the last event of a shard that was split or merged."""
        return self.continuation_sequence_number is None


class _UndatedRecord(msgspec.Struct, frozen=True, rename="pascal"):
    """A record that may lack its time of arrival: AWS's model promises all else."""

    sequence_number: str
    data: bytes
    partition_key: str
    approximate_arrival_timestamp: float | None = None
    encryption_type: str | None = None

    def dated(self) -> Record:
        """Return the record, arrived at 0 if nobody says when."""
        at = self.approximate_arrival_timestamp or 0.0
        return Record(self.sequence_number, at, self.data, self.partition_key, self.encryption_type)


class _UndatedEvent(msgspec.Struct, frozen=True, rename="pascal"):
    """An event of such records."""

    records: tuple[_UndatedRecord, ...]
    millis_behind_latest: int
    continuation_sequence_number: str | None = None
    child_shards: tuple[ChildShard, ...] | None = None

    def dated(self) -> SubscribeToShardEvent:
        """Return the event with its records."""
        records = tuple(record.dated() for record in self.records)
        return SubscribeToShardEvent(
            records, self.millis_behind_latest, self.continuation_sequence_number, self.child_shards
        )


class _Refusal(msgspec.Struct, frozen=True):
    """The body of an exception frame, and of an HTTP error. AWS writes `message`, some servers `Message`."""

    type: str = msgspec.field(name="__type", default="")
    message: str | None = None
    capital_message: str | None = msgspec.field(name="Message", default=None)


Parsed: TypeAlias = SubscribeToShardEvent | ServiceError | None

# What msgspec raises for what it cannot read: damage, wrong types, and nesting beyond the interpreter's depth.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_EVENT: Final = msgspec.json.Decoder(SubscribeToShardEvent)
_UNDATED_EVENT: Final = msgspec.json.Decoder(_UndatedEvent)
_REFUSAL: Final = msgspec.json.Decoder(_Refusal)


def parse(message: Message) -> Parsed:
    """Return what a message says: an event, the error that ends the subscription, or None for neither.

    None is the initial response, and any event of a type that we do not know yet. Raises EventError.
    """
    headers = message.headers
    match headers.get(":message-type"):
        case "event":
            if headers.get(":event-type") != "SubscribeToShardEvent":
                return None
            return _parse_event(message.payload)
        case "exception":
            code = str(headers.get(":exception-type", "UnknownException"))
            return service_error(code, _refusal(message.payload).message or "")
        case "error":
            return service_error(
                str(headers.get(":error-code", "UnknownError")), str(headers.get(":error-message", ""))
            )
        case other:
            raise EventError(f"a message of type {other!r}: expected event, exception or error")


def parse_refusal(status: int, body: bytes) -> ServiceError:
    """Return the error that an HTTP response other than 200 tells. The body may be anything."""
    refusal = _refusal(body)
    return service_error(refusal.type or f"HTTP{status}", refusal.message or "", status=status)


def _refusal(payload: bytes | memoryview) -> _Refusal:
    try:
        refusal = _REFUSAL.decode(payload)
    except _UNREADABLE:
        text = bytes(payload[:200]).decode(errors="replace").strip()
        return _Refusal(message=text)
    return _Refusal(type=refusal.type, message=refusal.message or refusal.capital_message)


def _parse_event(payload: bytes | memoryview) -> SubscribeToShardEvent:
    try:
        event = _decode_event(payload)
    except _UNREADABLE as error:
        raise EventError(f"the event does not parse: {error}") from error
    children = event.child_shards or ()
    continuation = event.continuation_sequence_number
    # Rule R2: one without the other is a fault of the protocol, and to end the shard on it would lose records.
    if (continuation is None) != bool(children):
        said = "neither a continuation nor child shards" if continuation is None else "both"
        raise EventError(f"the event has {said}: exactly one of the two is allowed")
    if continuation is not None and not _is_number(continuation):
        raise EventError(f"the continuation {continuation[:200]!r} is not a sequence number")
    for child in children:
        if not child.parent_shards:
            raise EventError("a child shard without parents")
        keys = child.hash_key_range
        if not (_is_number(keys.starting_hash_key) and _is_number(keys.ending_hash_key)):
            raise EventError(f"the hash keys of the child shard {child.shard_id} are not decimal")
    for record in event.records:
        if not _is_number(record.sequence_number):
            raise EventError(f"the sequence number {record.sequence_number[:200]!r} is not decimal")
    return event


def _decode_event(payload: bytes | memoryview) -> SubscribeToShardEvent:
    try:
        return _EVENT.decode(payload)
    except msgspec.ValidationError:
        return _UNDATED_EVENT.decode(payload).dated()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_SEQUENCE_DIGITS
